// Before Gradio starts (in the page's head, after its configuration). Gradio looks through all listeners for each
// component, more than half a million times for this page, and each look at an observed object costs. Svelte observes
// plain objects alone, and the listeners never change: as objects of a class they are read as they are.
'use strict';

class Listener {}
for (const one of window.gradio_config?.dependencies ?? []) Object.setPrototypeOf(one, Listener.prototype);

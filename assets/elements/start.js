// Start the page before Gradio has loaded.

define('wb-app', App);

if (!document.querySelector('wb-app')) {
  page.transport = new HttpTransport();
  document.body.prepend(document.createElement('wb-app'));
}

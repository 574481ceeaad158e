// Which LoRAs a search finds, and in which order they stand.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { elements } from './elements.mjs';

const { foundLoras, LORA_ORDERS } = elements(['foundLoras', 'LORA_ORDERS']);
const lora = (name, more = {}) => ({ name, title: name, trigger: '', base_model: 'wan', marks: [], steps: null, rank: 8, bytes: 1, created: 1, verdict: null, ...more });
const LORAS = [lora('ring', { trigger: 'zwx' }), lora('lion', { base_model: 'ltx', marks: ['starred'], steps: 500 }), lora('boat', { verdict: { claim: 'Overfitted' } })];
const names = (list) => list.map(({ name }) => name);

test('every word is found in name, trigger word, model, verdict or marks', () => {
  assert.deepEqual(names(foundLoras(LORAS, 'ZWX wan')), ['ring']);
  assert.deepEqual(names(foundLoras(LORAS, 'starred')), ['lion']);
  assert.deepEqual(names(foundLoras(LORAS, 'overfitted')), ['boat']);
  assert.deepEqual(names(foundLoras(LORAS, '', 'wan')), ['ring', 'boat']);
});

test('a LoRA whose steps are unknown stands last by steps', () => {
  assert.equal(names([...LORAS].sort(LORA_ORDERS.steps[1]))[0], 'lion');
});

import assert from 'node:assert/strict';
import test from 'node:test';
import { load } from './load.mjs';

const { parseLora, formatLora, choiceOf, grouped } = load('lora_stack', 'parseLora', 'formatLora', 'choiceOf', 'grouped');

test('a text is a name and a scale, 1 where there is none', () => {
  assert.deepEqual(parseLora('ring=0.8'), { name: 'ring', scale: 0.8 });
  assert.deepEqual(parseLora('ring'), { name: 'ring', scale: 1 });
  assert.deepEqual(parseLora('/a=b/x.safetensors'), { name: '/a=b/x.safetensors', scale: 1 });
  assert.deepEqual(parseLora('/a=b/x.safetensors=-2'), { name: '/a=b/x.safetensors', scale: -2 });
  assert.deepEqual(parseLora('ring='), { name: 'ring=', scale: 1 });
});

test('and becomes the same text again', () => {
  for (const text of ['ring', 'ring=0.8', 'runs/ring@250=0', 'you/cats:a.safetensors@main=1.5']) assert.equal(formatLora(parseLora(text)), text);
  assert.equal(formatLora(parseLora('ring=1')), 'ring');
});

test('a run is found with and without its prefix', () => {
  const choices = [{ name: 'loras/a' }, { name: 'runs/ring' }];
  assert.equal(choiceOf(choices, 'ring').name, 'runs/ring');
  assert.equal(choiceOf(choices, 'loras/a').name, 'loras/a');
  assert.equal(choiceOf(choices, 'a'), undefined);
});

test('groups keep the order of the choices', () => {
  const found = grouped([{ name: 'b', group: 'Runs' }, { name: 'a', group: 'LoRAs' }, { name: 'c', group: 'Runs' }]);
  assert.deepEqual([...found].map(([group, members]) => [group, members.map((one) => one.name)]), [['Runs', ['b', 'c']], ['LoRAs', ['a']]]);
});

// What is typed into a form becomes the value that JSON has; settings are found by the names that other programs give them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { elements } from './elements.mjs';

const { valueOfText, textOfValue, valueInWords, foundSettings, Filling } = elements(['valueOfText', 'textOfValue', 'valueInWords', 'foundSettings', 'Filling']);
const setting = (name, kind, more = {}) => ({ name, title: name, help: '', section: '', also: '', kind, default: null, optional: false, source: null, rows: 1, ...more });

test('what is typed is a number, a list, nothing, or stays text for the server to refuse', () => {
  assert.equal(valueOfText(setting('rank', 'integer'), ' 32 '), 32);
  assert.equal(valueOfText(setting('rate', 'number'), '1e-'), '1e-');
  assert.equal(valueOfText(setting('rate', 'number'), ''), '');
  assert.equal(valueOfText(setting('frames', 'integer', { optional: true }), ''), null);
  assert.deepEqual(valueOfText(setting('prompts', 'texts', { rows: 3 }), 'a cat\n\n a dog '), ['a cat', 'a dog']);
  assert.deepEqual(valueOfText(setting('scales', 'numbers'), '0, 1.5'), [0, 1.5]);
  assert.equal(textOfValue(setting('prompts', 'texts'), ['a', 'b']), 'a\nb');
  assert.deepEqual([valueInWords(setting('steps', 'integer', { unit: 'steps' }), 1), valueInWords(setting('on', 'switch'), false)], ['1 step', 'off']);
});

test('a setting is found by what other programs call it', () => {
  const settings = [setting('alpha', 'number', { also: 'network_alpha, lora alpha' }), setting('horizontal_flip', 'number', { also: 'flip_aug' })];
  assert.deepEqual(foundSettings(settings, 'network alpha').map(({ name }) => name), ['alpha']);
  assert.deepEqual(foundSettings(settings, 'FLIP_AUG').map(({ name }) => name), ['horizontal_flip']);
  assert.equal(foundSettings(settings, '').length, 2);
});

test('several values of a choice or a switch are tried; one of them is given', () => {
  const filling = new Filling('train', { several: true, start: { optimizer: ['adamw', 'muon'], dora: [true], exact: true } });
  filling.settings = [setting('optimizer', 'choice'), setting('dora', 'switch'), setting('exact', 'switch')];
  filling.named = new Map(filling.settings.map((one) => [one.name, one]));
  assert.deepEqual(filling.tried, ['optimizer=adamw,muon']);
  assert.deepEqual(filling.single, { dora: true, exact: true });
});

test('what nobody has filled in is missing, not wrong, until the form is sent', () => {
  const filling = new Filling('train');
  filling.settings = [setting('dataset', 'text', { default: '' }), setting('steps', 'integer', { default: 300 })];
  filling.named = new Map(filling.settings.map((one) => [one.name, one]));
  const problems = { dataset: 'choose one', steps: 'too many', '': 'no' };
  assert.deepEqual(filling.sorted(problems), [{ steps: 'too many', '': 'no' }, { dataset: 'choose one' }]);
  filling.touched.add('dataset');
  assert.deepEqual(filling.sorted(problems)[0], problems);
});

test('what was missing is no longer called so once it is filled in', () => {
  const filling = new Filling('train');
  filling.settings = [setting('dataset', 'text', { default: '' })];
  filling.named = new Map(filling.settings.map((one) => [one.name, one]));
  filling.missing = { dataset: 'choose one' };
  filling.later = () => {};
  filling.set('dataset', 'cats');
  assert.deepEqual(filling.missing, {});
});

test('several values of a number are tried, the others given', () => {
  const filling = new Filling('train', { several: true, start: { rank: '8, 16', steps: 600 } });
  filling.settings = [setting('rank', 'integer'), setting('steps', 'integer')];
  filling.named = new Map(filling.settings.map((one) => [one.name, one]));
  assert.deepEqual(filling.tried, ['rank=8, 16']);
  assert.deepEqual(filling.single, { steps: 600 });
});

// SPDX-License-Identifier: Apache-2.0
// The OpenAPI document as a page. It talks to this server alone, and keeps the token only as long as it is open.
'use strict';

const make = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};

const named = (reference) => reference.split('/').pop();

// The description of a schema, on one line.
function says(schema) {
  if (schema.$ref) return named(schema.$ref);
  if ('const' in schema) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.join(' | ');
  if (schema.type === 'array') return `[${says(schema.items || {})}]`;
  const choices = schema.anyOf || schema.oneOf || schema.allOf;
  if (choices) return choices.map(says).filter((text) => text !== 'null' && text !== '""').join(' or ');
  let text = [].concat(schema.type || 'anything').join(' or ');
  if ('minimum' in schema) text += ` ${schema.minimum} to ${schema.maximum ?? '…'}`;
  return text;
}

function links(schema) {
  const text = says(schema);
  const node = make('span');
  for (const part of text.split(/([A-Za-z]+)/)) {
    node.append(documentOf.components.schemas[part] ? make('a', { href: `#schema-${part}` }, part) : part);
  }
  return node;
}

function fields(schema) {
  const rows = Object.entries(schema.properties || {}).map(([name, field]) => make('tr', {},
    make('td', {}, make('code', {}, name), (schema.required || []).includes(name) ? ' *' : ''),
    make('td', {}, links(field)), make('td', {}, field.description || '')));
  if (!rows.length) return make('p', {}, links(schema));
  return make('table', {}, make('tr', {}, ...['field (* required)', 'holds', 'accepted'].map((text) => make('th', {}, text))), ...rows);
}

function tryIt(method, path, operation) {
  const box = make('div');
  const inputs = (operation.parameters || []).map((parameter) => {
    const schema = parameter.schema;
    const input = schema.enum || schema.type === 'boolean'
      ? make('select', {}, make('option', {}, ''), ...(schema.enum || ['true', 'false']).map((word) => make('option', {}, word)))
      : make('input', { size: 24 });
    return { parameter, input };
  });
  box.append(make('table', {}, ...inputs.map(({ parameter, input }) => make('tr', {},
    make('td', {}, make('code', {}, parameter.name), parameter.required ? ' *' : ''), make('td', {}, input),
    make('td', { className: 'dim' }, `${parameter.in}: ${parameter.description || ''}`)))));
  const media = operation.requestBody && Object.keys(operation.requestBody.content)[0];
  let body;
  if (media) {
    const { schema, 'x-example': example } = operation.requestBody.content[media];
    const text = JSON.stringify(example, null, 2);
    body = make('textarea', { spellcheck: false, value: text, rows: text.split('\n').length + 1 });
    box.append(make('p', {}, 'Sent: ', links(schema), ` as ${media}`), body);
  }
  const answer = make('pre', { hidden: true });
  const button = make('button', { type: 'button' }, 'Try it');
  let running;
  button.onclick = async () => {
    if (running) { running.abort(); return; }
    running = new AbortController();
    button.textContent = 'Stop';
    answer.hidden = false;
    answer.className = '';
    answer.textContent = '…';
    try {
      let address = path;
      const query = new URLSearchParams();
      const headers = {};
      for (const { parameter, input } of inputs) {
        if (parameter.in === 'path') address = address.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
        else if (input.value !== '' && parameter.in === 'query') query.set(parameter.name, input.value);
        else if (input.value !== '') headers[parameter.name] = input.value;
      }
      const token = document.getElementById('token').value.trim();
      if (token) headers.Authorization = `Bearer ${token}`;
      if (media) headers['Content-Type'] = media;
      const text = query.toString();
      const reply = await fetch(address + (text && `?${text}`), { method, headers, body: body && body.value, signal: running.signal });
      answer.textContent = `${reply.status} ${reply.statusText}\n` + [...reply.headers].map(([name, value]) => `${name}: ${value}`).join('\n') + '\n\n';
      if (!reply.ok) answer.className = 'bad';
      if ((reply.headers.get('content-type') || '').startsWith('text/event-stream')) {
        const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let part = await reader.read(); !part.done; part = await reader.read()) answer.textContent += part.value;
      } else {
        const said = await reply.text();
        try { answer.textContent += JSON.stringify(JSON.parse(said), null, 2); } catch { answer.textContent += said; }
      }
    } catch (error) {
      answer.textContent += `\n${error.message}`;
    }
    running = undefined;
    button.textContent = 'Try it';
  };
  box.append(make('p', {}, button), answer);
  return box;
}

let documentOf;

async function main() {
  documentOf = await (await fetch('openapi.json')).json();
  document.getElementById('about').textContent = documentOf.info.description;
  const operations = document.getElementById('operations');
  for (const tag of documentOf.tags) {
    const group = make('section', {}, make('h2', {}, tag.name));
    operations.append(group);
    for (const [path, methods] of Object.entries(documentOf.paths)) {
      for (const [lower, operation] of Object.entries(methods)) {
        if (!operation.tags.includes(tag.name)) continue;
        const method = lower.toUpperCase();
        const details = make('details', { className: 'entry', id: operation.operationId }, make('summary', {},
          make('span', { className: `method ${method}` }, method), make('code', {}, path), make('span', { className: 'dim' }, operation.summary)));
        details.dataset.text = `${method} ${path} ${operation.summary}`.toLowerCase();
        details.addEventListener('toggle', () => {
          if (details.children.length > 1) return;
          const replies = Object.entries(operation.responses).map(([status, reply]) => {
            const content = Object.entries(reply.content || {})[0];
            return make('tr', {}, make('td', {}, status), make('td', {}, reply.description), make('td', {}, content ? links(content[1].schema) : ''));
          });
          details.append(make('div', {}, make('p', {}, operation.description || ''), tryIt(method, path, operation),
            make('table', {}, make('tr', {}, ...['answer', '', ''].map((text) => make('th', {}, text))), ...replies)));
        });
        group.append(details);
      }
    }
  }
  const schemas = document.getElementById('schemas');
  for (const [name, schema] of Object.entries(documentOf.components.schemas).sort()) {
    const details = make('details', { className: 'entry', id: `schema-${name}` }, make('summary', {}, make('code', {}, name)));
    details.dataset.text = name.toLowerCase();
    details.addEventListener('toggle', () => { if (details.children.length === 1) details.append(make('div', {}, fields(schema))); });
    schemas.append(details);
  }
  const open = () => { const target = document.getElementById(location.hash.slice(1)); if (target) { target.open = true; target.scrollIntoView(); } };
  addEventListener('hashchange', open);
  open();
  document.getElementById('filter').oninput = (event) => {
    const word = event.target.value.trim().toLowerCase();
    for (const entry of document.querySelectorAll('.entry')) entry.hidden = !entry.dataset.text.includes(word);
    for (const group of document.querySelectorAll('section')) group.hidden = !group.querySelector('.entry:not([hidden])');
  };
}

main().catch((error) => { document.getElementById('about').textContent = `The document cannot be read: ${error.message}`; });

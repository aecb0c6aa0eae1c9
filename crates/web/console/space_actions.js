// What can be done with a space.

import { known } from './api.js';
import { propose } from './dialog.js';
import { h } from './dom.js';
import { bytes, command, losses, protection, sizeWord } from './format.js';
import { action, menu } from './parts.js';
import { bytesOf, sizeField, sizeOf } from './size_field.js';

function of(space) {
  return { parameters: { pool: space.pool, space: space.name }, name: `${space.pool}/${space.name}` };
}

export function grow(space, isVolume) {
  const { parameters, name } = of(space);
  const size = sizeOf(space.size_bytes);
  const verb = isVolume ? 'GrowVolume' : 'ResizeSpace';
  return propose({
    title: `Size of ${name}`,
    verb,
    parameters,
    label: 'Change the size',
    text: isVolume
      ? 'The space, its device and its file system grow together, while they are in use.'
      : 'A space can grow while it is in use. It becomes smaller only where nothing is cut off.',
    fields: (_, redraw) => sizeField('New size', size, redraw, `It has ${bytes(space.size_bytes)} now.`),
    isReady: () => Boolean(bytesOf(size)),
    body: () => ({ size_bytes: bytesOf(size) }),
    line: () => command(isVolume ? ['volume', 'grow'] : ['space', 'resize'], name, sizeWord(bytesOf(size))),
  });
}

const levelOf = (of) => `${of.resiliency}-${of.resiliency === 'mirror' ? of.copies : 1}-${of.parity ?? 0}`;

function layoutOf(level) {
  const [resiliency, copies, parity] = level.split('-');
  return {
    resiliency,
    ...(resiliency === 'mirror' ? { copies: Number(copies) } : {}),
    ...(resiliency === 'parity' ? { parity: Number(parity) } : {}),
  };
}

function convert(space) {
  const { parameters, name } = of(space);
  const levelFor = (model) => model.level ?? levelOf(space);
  const provisioningFor = (model) => model.provisioning ?? space.provisioning;
  return propose({
    title: `Convert ${name}`,
    verb: 'ConvertSpace',
    parameters,
    label: 'Convert',
    text: 'A job lays its rows again while the space is in use. With the same protection, the rows are laid as wide as the pool allows now.',
    fields: (model, redraw) => [
      h(
        'label',
        { class: 'field' },
        h('span', null, 'Protection'),
        h(
          'select',
          {
            name: 'level',
            value: levelFor(model),
            onchange: (event) => {
              model.level = event.target.value;
              redraw();
            },
          },
          (known('ShowRoom', { pool: space.pool }, 5)?.fits ?? [{ ...space, survives: null }]).map((fit) =>
            h(
              'option',
              { value: levelOf(fit) },
              fit.survives === null ? protection(fit) : `${protection(fit)}: ${losses(fit.survives)}`,
            ),
          ),
        ),
      ),
      h(
        'label',
        { class: 'field' },
        h('span', null, 'When room is claimed'),
        h(
          'select',
          {
            value: provisioningFor(model),
            onchange: (event) => {
              model.provisioning = event.target.value;
              redraw();
            },
          },
          [
            ['thin', 'thin: when it is first written'],
            ['fixed', 'fixed: all of it'],
          ].map(([value, text]) => h('option', { value }, text)),
        ),
      ),
    ],
    body: (model) => ({ ...layoutOf(levelFor(model)), provisioning: provisioningFor(model) }),
    line: (model) => {
      const layout = layoutOf(levelFor(model));
      return command(
        'space',
        'convert',
        name,
        '--resiliency',
        layout.resiliency,
        layout.copies && ['--copies', layout.copies],
        layout.parity && ['--parity', layout.parity],
        '--provisioning',
        provisioningFor(model),
      );
    },
  });
}

const LIMITS = [
  ['iops_max', 'Requests a second, at most', '--iops-max'],
  ['iops_min', 'Requests a second that others leave to it', '--iops-min'],
  ['bytes_per_s_max', 'MiB a second, at most', '--rate-max'],
  ['bytes_per_s_min', 'MiB a second that others leave to it', '--rate-min'],
];

function limits(space) {
  const { parameters, name } = of(space);
  const isRate = (key) => key.startsWith('bytes');
  const valueOf = (model, key) => model[key] ?? String((space.limits?.[key] ?? 0) / (isRate(key) ? 2 ** 20 : 1) || '');
  const numberOf = (model, key) => {
    const value = Number(valueOf(model, key)) || 0;
    return isRate(key) ? Math.round(value * 1024) * 1024 : Math.round(value);
  };
  return propose({
    title: `Limits of ${name}`,
    verb: 'SetLimits',
    parameters,
    label: 'Save',
    text: 'Reads, writes and discards count. An empty field is no limit.',
    fields: (model, redraw) =>
      h(
        'div',
        { class: 'field-row' },
        LIMITS.map(([key, label]) =>
          h(
            'label',
            { class: 'field' },
            h('span', null, label),
            h('input', {
              type: 'number',
              min: 0,
              step: 'any',
              name: key,
              value: valueOf(model, key),
              oninput: (event) => {
                model[key] = event.target.value;
                redraw();
              },
            }),
          ),
        ),
      ),
    body: (model) => Object.fromEntries(LIMITS.map(([key]) => [key, numberOf(model, key)])),
    line: (model) =>
      command(
        'space',
        'set',
        name,
        LIMITS.map(([key, , flag]) => [
          flag,
          numberOf(model, key) ? (isRate(key) ? sizeWord(numberOf(model, key)) : numberOf(model, key)) : 'none',
        ]),
      ),
  });
}

function reserve(space) {
  const { parameters, name } = of(space);
  const size = space.reserve_bytes ? sizeOf(space.reserve_bytes) : { value: '', unit: 'GiB' };
  return propose({
    title: `Reserve of ${name}`,
    verb: 'SetReserve',
    parameters,
    label: 'Save',
    text: 'So many bytes of the thin space can be written however full its pool is. An empty field is no reserve.',
    fields: (_, redraw) => sizeField('Reserve', size, redraw),
    body: () => ({ bytes: bytesOf(size) ?? 0 }),
    line: () => command('space', 'set', name, '--reserve', bytesOf(size) ? sizeWord(bytesOf(size)) : 'none'),
  });
}

function rename(space) {
  const { parameters, name } = of(space);
  const wanted = (model) => (model.name ?? space.name).trim();
  return propose({
    title: `Rename ${name}`,
    verb: 'RenameSpace',
    parameters,
    label: 'Rename',
    fields: (model, redraw) =>
      h(
        'label',
        { class: 'field' },
        h('span', null, 'New name'),
        h('input', {
          type: 'text',
          value: model.name ?? space.name,
          oninput: (event) => {
            model.name = event.target.value;
            redraw();
          },
        }),
      ),
    isReady: (model) => wanted(model) !== '' && wanted(model) !== space.name,
    body: (model) => ({ name: wanted(model) }),
    line: (model) => command('space', 'set', name, '--name', wanted(model)),
    done: (answer) => {
      if (answer.space)
        location.hash = `#/spaces/${encodeURIComponent(space.pool)}/${encodeURIComponent(answer.space.name)}`;
    },
  });
}

function serve(space) {
  const { parameters, name } = of(space);
  const network = (model) => {
    if (!model.listen?.trim()) return {};
    const tls = model.certificate?.trim()
      ? {
          tls: {
            certificate: model.certificate.trim(),
            key: model.key?.trim() ?? '',
            client_ca: model.ca?.trim() ?? '',
          },
        }
      : {};
    return { network: { listen: model.listen.trim(), ...tls } };
  };
  const text = (model, redraw, key, label, placeholder) =>
    h(
      'label',
      { class: 'field' },
      h('span', null, label),
      h('input', {
        type: 'text',
        placeholder,
        value: model[key] ?? '',
        oninput: (event) => {
          model[key] = event.target.value;
          redraw();
        },
      }),
    );
  return propose({
    title: `Serve ${name} over NBD`,
    verb: 'ServeSpace',
    parameters,
    label: 'Serve it',
    text: 'Programs of this host reach it on a socket. On a network, clients need TLS and a certificate.',
    fields: (model, redraw) => [
      h(
        'label',
        { class: 'inline' },
        h('input', {
          type: 'checkbox',
          checked: Boolean(model.isReadOnly),
          onchange: (event) => {
            model.isReadOnly = event.target.checked;
            redraw();
          },
        }),
        h('span', null, 'Take no changes from clients'),
      ),
      h(
        'details',
        null,
        h('summary', null, 'On a network as well'),
        h(
          'div',
          { class: 'options' },
          text(model, redraw, 'listen', 'Address and port', '192.0.2.1:10809'),
          text(
            model,
            redraw,
            'certificate',
            'Certificate of the server (a file on the host)',
            '/etc/dolmen/server.pem',
          ),
          text(model, redraw, 'key', 'Its key', '/etc/dolmen/server.key'),
          text(model, redraw, 'ca', 'Authorities of the clients', '/etc/dolmen/clients.pem'),
        ),
      ),
    ],
    body: (model) => ({ ...(model.isReadOnly ? { read_only: true } : {}), ...network(model) }),
    line: (model) => {
      const net = network(model).network;
      return command(
        'serve',
        name,
        model.isReadOnly && '--read-only',
        net && ['--listen', net.listen],
        net?.tls && ['--tls-cert', net.tls.certificate, '--tls-key', net.tls.key, '--client-ca', net.tls.client_ca],
      );
    },
  });
}

function deletion(space, isPurge, isVolume) {
  const { parameters, name } = of(space);
  const done = () => {
    if (location.hash.split('/').length > 2) location.hash = isVolume ? '#/volumes' : '#/spaces';
  };
  if (isPurge) {
    return propose({
      title: `Delete ${name} for good`,
      text: 'All that it holds is lost, at once.',
      verb: 'DeleteSpace',
      parameters,
      label: 'Delete for good',
      isDanger: true,
      typed: space.name,
      body: (model) => ({ purge: true, destroy: model.typed ?? '' }),
      shown: () => ({ purge: true }),
      line: () => command('space', 'delete', name, '--purge', '--destroy', space.name),
      done,
    });
  }
  const verb = isVolume ? 'DeleteVolume' : 'DeleteSpace';
  return propose({
    title: `Delete ${name}`,
    text: 'It goes into the trash with all that it holds, and can be restored from there.',
    verb,
    parameters,
    label: 'Into the trash',
    isDanger: true,
    line: () => command(isVolume ? 'volume' : 'space', 'delete', name),
    done,
  });
}

function simple(verb, space, title, text, label, line) {
  return () => propose({ title, text, verb, parameters: of(space).parameters, label, line: () => command(line) });
}

/** Buttons for a space. A space with a volume is mounted and deleted as one. */
export function spaceActions(space, isVolume, isFull = false, more = []) {
  const { name } = of(space);
  const attach = space.attached_at
    ? !isVolume &&
      action(
        'DetachSpace',
        'Detach',
        simple('DetachSpace', space, `Detach ${name}`, 'Its block device goes away. Nothing may use it.', 'Detach', [
          'space',
          'detach',
          name,
        ]),
      )
    : !isVolume &&
      action(
        'AttachSpace',
        'Attach',
        simple(
          'AttachSpace',
          space,
          `Attach ${name}`,
          'It becomes a block device of the host, to be formatted and mounted.',
          'Attach',
          ['space', 'attach', name],
        ),
      );
  const nbd = space.served_at
    ? action(
        'UnserveSpace',
        'Stop serving',
        simple('UnserveSpace', space, `Stop serving ${name}`, 'Clients are disconnected.', 'Stop serving', [
          'unserve',
          name,
        ]),
      )
    : !isVolume && action('ServeSpace', 'Serve', () => serve(space));
  const main = [action(isVolume ? 'GrowVolume' : 'ResizeSpace', 'Grow', () => grow(space, isVolume)), attach, nbd];
  return [
    isFull ? main : null,
    menu(
      `More for ${name}`,
      isFull ? null : main,
      more,
      action('ConvertSpace', 'Convert', () => convert(space)),
      action('SetLimits', 'Limits', () => limits(space)),
      space.provisioning === 'thin' && action('SetReserve', 'Reserve', () => reserve(space)),
      !isVolume && action('RenameSpace', 'Rename', () => rename(space)),
      isVolume
        ? action('DeleteVolume', 'Delete', () => deletion(space, false, true), 'danger')
        : action('DeleteSpace', 'Delete', () => deletion(space, false, false), 'danger'),
      !isVolume && action('DeleteSpace', 'Delete for good', () => deletion(space, true, false), 'danger'),
    ),
  ];
}

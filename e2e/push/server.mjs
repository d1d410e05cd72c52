// server.mjs PORT FOLDER [CERTIFICATE KEY]: an RTMP server that records what it gets, over
// TLS if it has a certificate.
import NodeMediaServer from 'node-media-server';

const [port, folder, cert, key] = process.argv.slice(2);
const door = cert ? { rtmps: { port: Number(port), cert, key } } : { rtmp: { port: Number(port) } };
new NodeMediaServer({ bind: '127.0.0.1', ...door, record: { path: folder } }).run();

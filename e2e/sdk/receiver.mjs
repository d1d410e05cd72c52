// An HTTP server on this machine that plays the caller's own: it takes webhooks, and
// it has a source file that never arrives, so that an import of it stays unfinished.

import { once } from "node:events";
import { createServer } from "node:http";

// Receiver keeps what is posted to it.
export class Receiver {
  deliveries = []; // {headers, body}: body as text
  answer = { status: 200, body: "received" };
  #server = createServer((request, response) => this.#serve(request, response));
  #open = new Set();

  async start() {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    this.url = `http://127.0.0.1:${this.#server.address().port}`;
    return this;
  }

  async #serve(request, response) {
    if (request.method !== "POST") {
      this.#open.add(response);
      return;
    }
    const chunks = await request.toArray();
    this.deliveries.push({ headers: request.headers, body: Buffer.concat(chunks).toString("utf8") });
    response.writeHead(this.answer.status, { "content-type": "text/plain" }).end(this.answer.body);
  }

  async stop() {
    for (const response of this.#open) response.destroy();
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, "close");
  }
}

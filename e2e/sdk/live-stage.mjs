// What a stream needs beside weir: an encoder, and a server of others that it is sent on
// to. Both are real, and end with this script.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, stat } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { eventually } from "./check.mjs";

// Program is one that can be started again and again.
class Program {
  #child = null;
  #ended = null;
  said = "";

  start(command, args) {
    assert.equal(this.#child, null, `${command} runs already`);
    this.#child = spawn(command, args, { stdio: ["ignore", "ignore", "pipe"] });
    this.#child.stderr.on("data", (data) => (this.said += data));
    this.#ended = once(this.#child, "exit");
  }

  // end sends a signal, if one is given, and waits until the program has ended.
  async end(signal) {
    if (signal) this.#child.kill(signal);
    await this.#ended;
    this.#child = null;
  }

  get running() {
    return this.#child !== null && this.#child.exitCode === null && this.#child.signalCode === null;
  }
}

// Encoder sends a file over and over, in its own time.
export class Encoder extends Program {
  constructor(file) {
    super();
    this.file = file;
  }

  send(url) {
    this.start("ffmpeg", ["-hide_banner", "-nostdin", "-v", "error", "-xerror", "-re", "-stream_loop", "-1", "-i", this.file, "-c", "copy", "-f", "flv", url]);
  }

  // leave says goodbye.
  leave() {
    return this.end("SIGINT");
  }

  // cut waits until weir has ended the connection.
  cut() {
    return this.end();
  }
}

// Platform is an RTMP server that records what it gets.
export class Platform extends Program {
  constructor({ addr, folder, command }) {
    super();
    Object.assign(this, { addr, folder, command });
  }

  async open() {
    const [program, ...args] = this.command;
    this.start(program, args);
    const [host, port] = this.addr.split(":");
    await eventually(async () => {
      assert.ok(this.running, `${program} ended: ${this.said}`);
      const socket = connect(Number(port), host);
      await once(socket, "connect");
      socket.destroy();
    });
  }

  // fail ends the server without a goodbye.
  fail() {
    return this.end("SIGKILL");
  }

  // gets waits until the server has recorded something under a key.
  gets(key) {
    return eventually(async () => {
      const files = (await readdir(this.folder)).filter((name) => name.startsWith(key));
      assert.equal(files.length, 1, `recordings of ${key}: ${files}; ${this.said}`);
      const { size } = await stat(join(this.folder, files[0]));
      assert.ok(size > 20_000, `${size} bytes of ${key}`);
    });
  }
}

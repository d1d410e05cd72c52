// A test harness in a few lines: cases run one after the other, because they build
// on one another, and each prints one line in the manner of the Test Anything
// Protocol.

import assert from "node:assert/strict";
import { Livepeer } from "livepeer";
import { HTTPClient } from "livepeer/lib/http.js";
import { timeoutMs } from "./check.mjs";

// Suite drives one SDK object and remembers which of its operations passed.
export class Suite {
  #count = 0;
  #failed = 0;
  #exercised = new Set();
  #sdk;

  // raw is the body of the last answer as the server sent it, before the SDK
  // looked at it; null when it was empty.
  raw = null;

  constructor(serverURL, apiKey) {
    const httpClient = new HTTPClient().addHook("response", async (response) => {
      const text = await response.clone().text();
      try {
        this.raw = text === "" ? null : JSON.parse(text);
      } catch {
        this.raw = text;
      }
    });
    this.#sdk = new Livepeer({ serverURL, apiKey, httpClient, timeoutMs });
  }

  // call runs an operation, "stream.create", and returns its typed result.
  call(operation, ...args) {
    const [group, method] = operation.split(".");
    return this.#sdk[group][method](...args);
  }

  // test runs one case of an operation. check gets the operation as a function.
  async test(operation, what, check) {
    this.#count++;
    try {
      await check((...args) => this.call(operation, ...args));
      this.#exercised.add(operation);
      console.log(`ok ${this.#count} - ${operation}: ${what}`);
    } catch (error) {
      this.#failed++;
      console.log(`not ok ${this.#count} - ${operation}: ${what}`);
      const text = `${error?.stack ?? error}\nlast answer: ${JSON.stringify(this.raw)}`;
      console.log(text.replace(/^/gm, "# "));
    }
  }

  // operations lists every operation of the SDK, found by looking at it: each getter
  // of the SDK is a group, each method of a group is an operation.
  operations() {
    const groups = Object.entries(Object.getOwnPropertyDescriptors(Livepeer.prototype)).filter(([, d]) => d.get);
    return groups.flatMap(([group]) =>
      Object.getOwnPropertyNames(Object.getPrototypeOf(this.#sdk[group]))
        .filter((method) => method !== "constructor")
        .map((method) => `${group}.${method}`),
    );
  }

  // finish fails if an operation was neither exercised nor is excepted, prints the
  // plan and returns the exit code. An exception is "group.method" or "group.*".
  async finish(exceptions) {
    const operations = this.operations();
    const excepted = (operation) =>
      exceptions.includes(operation) || exceptions.includes(operation.replace(/\..*/, ".*"));
    await this.test("all", "every operation passed or is excepted", () => {
      assert.ok(operations.length > 0, "the SDK has operations");
      const missing = operations.filter((o) => !this.#exercised.has(o) && !excepted(o));
      assert.deepEqual(missing, [], "operations that did not pass");
      const needless = operations.filter((o) => this.#exercised.has(o) && excepted(o));
      assert.deepEqual(needless, [], "exceptions that passed");
      const unknown = exceptions.filter((e) => !operations.some((o) => e === o || e === o.replace(/\..*/, ".*")));
      assert.deepEqual(unknown, [], "exceptions that the SDK does not have");
    });
    console.log(`1..${this.#count}`);
    const passed = operations.filter((o) => this.#exercised.has(o)).length;
    console.log(`# ${passed} of ${operations.length} operations passed, ${this.#failed} cases failed`);
    return this.#failed === 0 ? 0 : 1;
  }
}

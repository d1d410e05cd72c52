// What the cases have in common to look at.

import assert from "node:assert/strict";
import { ErrorT } from "livepeer/models/errors/error.js";
import { SDKError } from "livepeer/models/errors/sdkerror.js";

// timeoutMs ends what hangs. How long anything takes says only how busy the machine is.
export const timeoutMs = 300_000;
export const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
export const unknownId = "00000000-0000-4000-8000-000000000000";

// sameMembers compares the top-level members of an answer with those of the typed
// result, as the SDK's own tests do: a member more or less means that the answer and
// the SDK's model have drifted apart. Case does not count (UserID is userID).
export function sameMembers(raw, typed) {
  const members = (object) =>
    Object.entries(object)
      .map(([name, value]) => `${name.toLowerCase()}: ${typeof value}`)
      .sort();
  assert.ok(typed, "there is a typed result");
  assert.deepEqual(members(typed), members(raw), "typed members (actual) and raw members (expected)");
}

// eventually calls check until it does not throw, or throws what it threw last.
export async function eventually(check) {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > deadline) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

// fails expects the SDK's error for a status, with a body that says why.
export async function fails(promise, status, why) {
  await assert.rejects(promise, (error) => {
    assert.ok(error instanceof SDKError, `${error}`);
    assert.equal(error.statusCode, status);
    assert.match(error.contentType, /^application\/json/);
    assert.match(JSON.parse(error.body).errors[0], why);
    return true;
  });
}

// notPlayable expects the one error that the SDK has a model of.
export async function notPlayable(promise, playbackId) {
  await assert.rejects(promise, (error) => {
    assert.ok(error instanceof ErrorT, `${error}`);
    assert.deepEqual(error.errors, [`No playback URL found for ${playbackId}`]);
    return true;
  });
}

export function includes(list, ...ids) {
  const listed = list.map((object) => object.id);
  for (const id of ids) assert.ok(listed.includes(id), `${id} is not in ${listed}`);
}

export function checkOwned(object) {
  assert.match(object.id, uuid);
  assert.match(object.userId, uuid);
  assert.match(object.projectId, uuid);
  assert.ok(object.createdAt > 0, "createdAt");
}

export function checkPlaybackId(object) {
  assert.match(object.playbackId, /^[0-9a-z]{16}$/);
  assert.equal(object.playbackId.slice(0, 4), object.id.slice(0, 4));
}

export function checkUrl(text) {
  assert.match(text, /^https?:\/\//);
  new URL(text);
}

export function noSecret(object, secret) {
  assert.ok(!JSON.stringify(object).includes(secret), "the answer shows a secret");
}

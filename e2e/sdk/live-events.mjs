// What a webhook is told of streams, held against the contract: in the order in which it
// happened, signed, each event once and with its payload, and with streams and sessions
// that the SDK's own models know.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { Session$inboundSchema } from "livepeer/models/components/session.js";
import { Stream$inboundSchema } from "livepeer/models/components/stream.js";
import { eventually, sameMembers, uuid } from "./check.mjs";

export const names = [
  "stream.started", "stream.idle", "recording.started", "recording.waiting", "recording.ready",
  "multistream.connected", "multistream.error", "multistream.disconnected",
];

// What every event has of a stream, and of a session.
const counters = ["sourceSegments", "transcodedSegments", "sourceSegmentsDuration", "transcodedSegmentsDuration", "sourceBytes", "transcodedBytes"];
const streamMembers = [
  "id", "kind", "name", "userId", "projectId", "createdAt", "createdByTokenName", "playbackId", "isActive", "lastSeen", "lastTerminatedAt",
  "suspended", "record", "profiles", "multistream", "renditions", ...counters,
];
const sessionMembers = ["id", "kind", "name", "userId", "projectId", "parentId", "playbackId", "createdAt", "lastSeen", "record", "profiles", ...counters];

// Told reads what a webhook gets, one event after the other.
export class Told {
  #read = 0;
  #ids = new Set();

  constructor(receiver, webhookId, sharedSecret) {
    Object.assign(this, { receiver, webhookId, sharedSecret });
  }

  // next returns the next event, which must have the name and tell of the stream as it is
  // when that happens.
  async next(name, streamId) {
    const delivery = await eventually(() => {
      assert.ok(this.receiver.deliveries.length > this.#read, `${name} has come; so far: ${this.#names()}`);
      return this.receiver.deliveries[this.#read];
    });
    this.#read++;
    const event = this.#open(delivery);
    assert.equal(event.event, name, `the next event; so far: ${this.#names()}`);
    checkStream(event.stream, streamId);
    checkPayload[name.split(".")[0]](event);
    return event;
  }

  // nextTargets returns the next events, one of each target and in any order.
  async nextTargets(name, streamId, targets) {
    const told = [];
    for (const _ of targets) told.push((await this.next(name, streamId)).payload.target);
    const byId = (a, b) => (a.id < b.id ? -1 : 1);
    assert.deepEqual(told.sort(byId), [...targets].sort(byId), name);
  }

  // allRead fails if more has come than was looked at.
  allRead() {
    assert.equal(this.#read, this.receiver.deliveries.length, `events that nobody expects; all: ${this.#names()}`);
  }

  #names() {
    return this.receiver.deliveries.map((d) => JSON.parse(d.body).event).join(", ");
  }

  // #open returns the event of a delivery whose signature holds.
  #open({ headers, body }) {
    const event = JSON.parse(body);
    const signature = createHmac("sha256", this.sharedSecret).update(body).digest("hex");
    assert.equal(headers["livepeer-signature"], `t=${event.timestamp},v1=${signature}`);
    assert.match(headers["content-type"], /^application\/json/);
    assert.match(headers["user-agent"], /^weir\/./);
    assert.deepEqual(Object.keys(event).sort(), ["createdAt", "event", "id", "payload", "stream", "timestamp", "webhookId"]);
    assert.match(event.id, uuid);
    assert.ok(!this.#ids.has(event.id), "an event comes once");
    this.#ids.add(event.id);
    assert.equal(event.webhookId, this.webhookId);
    assert.ok(event.createdAt > 0 && event.timestamp >= event.createdAt, "createdAt and timestamp");
    return event;
  }
}

function checkStream(stream, streamId) {
  sameMembers(stream, Stream$inboundSchema.parse(stream));
  for (const member of streamMembers) assert.ok(member in stream, `stream.${member}`);
  assert.ok(!("streamKey" in stream), "no streamKey");
  assert.equal(stream.id, streamId);
}

function checkSession({ assetId, ...session }, stream) {
  sameMembers(session, Session$inboundSchema.parse(session));
  for (const member of sessionMembers) assert.ok(member in session, `session.${member}`);
  assert.match(session.id, uuid);
  assert.equal(session.kind, "session");
  // The name of the stream when the session began.
  assert.ok(["on air", "renamed", "pulled"].includes(session.name), session.name);
  assert.equal(session.parentId, stream.id);
  for (const member of ["userId", "projectId", "playbackId", "record", "profiles"]) {
    assert.deepEqual(session[member], stream[member], `session.${member}`);
  }
}

// checkPayload looks at what comes beside the stream, by the first word of the event.
const checkPayload = {
  stream({ event, stream, payload }) {
    assert.deepEqual(Object.keys(payload), ["session"]);
    checkSession(payload.session, stream);
    assert.equal(stream.isActive, event === "stream.started");
    assert.equal(stream.isHealthy, event === "stream.started" ? true : undefined);
    assert.equal(payload.session.recordingStatus, stream.record ? "waiting" : undefined);
  },

  recording({ event, stream, payload }) {
    const { session } = payload;
    checkSession(session, stream);
    assert.equal(session.assetId, event === "recording.started" ? undefined : session.id);
    if (event !== "recording.ready") {
      assert.deepEqual(Object.keys(payload), ["session"]);
      assert.equal(session.recordingStatus, "waiting");
      return;
    }
    assert.deepEqual(Object.keys(payload).sort(), ["mp4Url", "recordingUrl", "session"]);
    assert.equal(session.recordingStatus, "ready");
    assert.equal(payload.recordingUrl, session.recordingUrl);
    assert.equal(payload.mp4Url, session.mp4Url);
    for (const url of [payload.recordingUrl, payload.mp4Url]) assert.match(url, /^https?:\/\//);
  },

  multistream({ stream, payload }) {
    assert.deepEqual(Object.keys(payload), ["target"]);
    assert.deepEqual(Object.keys(payload.target).sort(), ["id", "name", "profile"]);
    assert.equal(stream.isActive, true);
  },
};

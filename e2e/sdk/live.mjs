// What is live: streams, the places they are pushed on to, and their sessions.

import assert from "node:assert/strict";
import { checkOwned, checkPlaybackId, checkUrl, fails, includes, noSecret, sameMembers, unknownId, uuid } from "./check.mjs";

const targetUrl = "rtmp://127.0.0.1:1/live/secret-key-of-the-platform";

const profiles = [
  { name: "720p", width: 1280, height: 720, bitrate: 3_000_000, fps: 30, fpsDen: 1, quality: 23, gop: "2.0", profile: "H264Main", encoder: "H.264" },
  { name: "240p", width: 426, height: 240, bitrate: 250_000, fps: 0 },
];
const recordingProfiles = [{ name: "720p", width: 1280, height: 720, bitrate: 3_000_000, encoder: "H.264" }];
const userTags = { team: "red", season: 7, players: ["ann", 2] };

// streams follows one stream from its creation to its end.
export async function streams(run) {
  const id = await createStreams(run);
  await readStreams(run, id);
  await updateStream(run, id);
  await targetsOfStream(run, id);
  await endStream(run, id);
}

async function createStreams({ suite, test, call, receiver }) {
  let id;

  await test("stream.create", "with every member", async (create) => {
    const { statusCode, stream } = await create({
      name: "all members",
      creatorId: "creator-1",
      userTags,
      profiles,
      record: true,
      recordingSpec: { profiles: recordingProfiles },
      playbackPolicy: { type: "jwt", refreshInterval: 60 },
      multistream: { targets: [{ profile: "240p", videoOnly: true, spec: { name: "elsewhere", url: targetUrl } }] },
    });
    assert.equal(statusCode, 201);
    sameMembers(suite.raw, stream);
    checkNewStream(stream);
    id = stream.id;
    assert.equal(stream.name, "all members");
    assert.deepEqual(stream.creatorId, { type: "unverified", value: "creator-1" });
    assert.deepEqual(stream.userTags, userTags);
    assert.deepEqual(stream.profiles, profiles);
    assert.equal(stream.record, true);
    assert.deepEqual(stream.recordingSpec, { profiles: recordingProfiles });
    assert.equal(stream.playbackPolicy.type, "jwt");
    assert.equal(stream.playbackPolicy.refreshInterval, 60);
    const [target, ...others] = stream.multistream.targets;
    assert.match(target.id, uuid);
    assert.equal(target.profile, "240p");
    assert.equal(target.videoOnly, true);
    assert.deepEqual(others, []);
    noSecret(suite.raw, targetUrl);
  });

  for (const [what, given] of [["left out", undefined], ["null", null]]) {
    await test("stream.create", `default profiles when they are ${what}`, async (create) => {
      const { stream } = await create({ name: "defaults", profiles: given });
      sameMembers(suite.raw, stream);
      checkNewStream(stream);
      assert.deepEqual(stream.profiles.map((p) => p.name), ["240p0", "360p0", "480p0", "720p0"]);
      assert.equal(stream.record, false);
      assert.deepEqual(stream.multistream, { targets: [] });
      assert.equal((await call("stream.delete", stream.id)).statusCode, 204);
    });
  }

  await test("stream.create", "with a pull source", async (create) => {
    const source = `${receiver.url}/live.m3u8`;
    const { stream } = await create({ name: "pulled", pull: { source, isMobile: 1, location: { lat: 39.739, lon: -104.988 } } });
    sameMembers(suite.raw, stream);
    assert.equal(stream.pull.source, source);
    assert.deepEqual(stream.pull.location, { lat: 39.739, lon: -104.988 });
    assert.equal((await call("stream.delete", stream.id)).statusCode, 204);
  });

  await test("stream.create", "400 on two profiles of one name", async (create) => {
    await fails(create({ name: "twice", profiles: [profiles[1], profiles[1]] }), 400, /duplicate profile name "240p"/);
  });

  return id;
}

async function readStreams({ suite, test, seed }, id) {
  await test("stream.get", "the stream as it was created", async (get) => {
    const { statusCode, stream } = await get(id);
    assert.equal(statusCode, 200);
    sameMembers(suite.raw, stream);
    assert.equal(stream.id, id);
    assert.deepEqual(stream.profiles, profiles);
    assert.deepEqual(stream.userTags, userTags);
  });

  await test("stream.get", "a stream that has been on air", async (get) => {
    const { stream } = await get(seed.streamId);
    sameMembers(suite.raw, stream);
    assert.equal(stream.id, seed.streamId);
    assert.equal(stream.isActive, false);
    assert.ok(stream.lastSeen > 0, "lastSeen");
  });

  await test("stream.get", "404 for an unknown id", (get) => fails(get(unknownId), 404, /^not found$/));

  for (const streamsonly of [undefined, "true"]) {
    await test("stream.getAll", `with streamsonly ${streamsonly}`, async (getAll) => {
      const { statusCode, data } = await getAll(streamsonly);
      assert.equal(statusCode, 200);
      includes(data, id, seed.streamId);
      assert.equal(data.length, suite.raw.length);
      for (const stream of data) assert.equal(stream.kind, "stream");
    });
  }
}

async function updateStream({ suite, test, call }, id) {
  await test("stream.update", "every member that can be changed", async (update) => {
    const changes = {
      name: "renamed",
      creatorId: { type: "unverified", value: "creator-2" },
      userTags: { team: "blue" },
      profiles: [profiles[1]],
      record: true,
      recordingSpec: { profiles: [{ bitrate: 1_000_000 }] },
      playbackPolicy: { type: "public" },
      multistream: { targets: [] },
      suspended: true,
    };
    const { statusCode } = await update(changes, id);
    assert.equal(statusCode, 204);
    const { stream } = await call("stream.get", id);
    sameMembers(suite.raw, stream);
    for (const [member, value] of Object.entries(changes)) {
      assert.deepEqual(stream[member], value, member);
    }
  });

  await test("stream.update", "404 for an unknown id", (update) => fails(update({ name: "x" }, unknownId), 404, /^not found$/));
}

async function targetsOfStream({ suite, test, call }, id) {
  let targetId;
  await test("stream.addMultistreamTarget", "a new target", async (add) => {
    const { statusCode } = await add({ profile: "source", spec: { name: "added", url: targetUrl } }, id);
    assert.equal(statusCode, 200);
    assert.equal(suite.raw.name, "added");
    assert.match(suite.raw.id, uuid);
    noSecret(suite.raw, targetUrl);
    targetId = suite.raw.id;
    const { stream } = await call("stream.get", id);
    assert.deepEqual(stream.multistream.targets.map((t) => [t.id, t.profile]), [[targetId, "source"]]);
  });

  await test("stream.addMultistreamTarget", "a target that exists, with another profile", async (add) => {
    await add({ profile: "240p", videoOnly: true, id: targetId }, id);
    const { stream } = await call("stream.get", id);
    assert.deepEqual(stream.multistream.targets.map((t) => [t.id, t.profile]), [[targetId, "source"], [targetId, "240p"]]);
  });

  await test("stream.addMultistreamTarget", "400 for an unknown profile", (add) =>
    fails(add({ profile: "4k", id: targetId }, id), 400, /multistream target profile not found: "4k"/));

  await test("stream.removeMultistreamTarget", "takes all references, and leaves the target", async (remove) => {
    const { statusCode } = await remove(id, targetId);
    assert.equal(statusCode, 204);
    assert.deepEqual((await call("stream.get", id)).stream.multistream.targets, []);
    assert.equal((await call("multistream.get", targetId)).multistreamTarget.id, targetId);
  });
}

async function endStream({ test, call, seed }, id) {
  await test("stream.terminate", "notes when", async (terminate) => {
    const { statusCode } = await terminate(id);
    assert.equal(statusCode, 204);
    const { stream } = await call("stream.get", id);
    assert.ok(stream.lastTerminatedAt > 0, "lastTerminatedAt");
  });

  await test("stream.terminate", "429 when it comes again at once", (terminate) =>
    fails(terminate(id), 429, /^too many terminate requests$/));

  await test("stream.getClips", "the clips of a stream", async (getClips) => {
    const { statusCode, data } = await getClips(seed.streamId);
    assert.equal(statusCode, 200);
    checkClip(data, seed);
  });

  await test("stream.getClips", "none of a new stream", async (getClips) => {
    assert.deepEqual((await getClips(id)).data, []);
  });

  await test("stream.delete", "is gone afterwards", async (remove) => {
    const { statusCode } = await remove(id);
    assert.equal(statusCode, 204);
    await fails(call("stream.get", id), 404, /^not found$/);
    await fails(remove(id), 404, /^not found$/);
  });
}

function checkNewStream(stream) {
  checkOwned(stream);
  assert.equal(stream.kind, "stream");
  assert.match(stream.streamKey, /^[0-9a-z]{4}(-[0-9a-z]{4}){3}$/);
  checkPlaybackId(stream);
  assert.equal(stream.isActive, false);
  assert.equal(stream.suspended, false);
  assert.equal(stream.lastSeen, 0);
  assert.equal(stream.lastTerminatedAt, null);
  for (const counter of ["sourceSegments", "transcodedSegments", "sourceSegmentsDuration", "transcodedSegmentsDuration", "sourceBytes", "transcodedBytes"]) {
    assert.equal(stream[counter], 0, counter);
  }
}

export async function multistreamTargets({ suite, test, call }) {
  let id;
  await test("multistream.create", "named", async (create) => {
    const { statusCode, multistreamTarget } = await create({ name: "platform", url: targetUrl });
    assert.equal(statusCode, 201);
    sameMembers(suite.raw, multistreamTarget);
    noSecret(suite.raw, targetUrl);
    assert.match(multistreamTarget.id, uuid);
    assert.match(multistreamTarget.userId, uuid);
    assert.ok(multistreamTarget.createdAt > 0, "createdAt");
    assert.equal(multistreamTarget.name, "platform");
    assert.equal(multistreamTarget.disabled, false);
    id = multistreamTarget.id;
  });

  await test("multistream.create", "named after its host", async (create) => {
    const { multistreamTarget } = await create({ url: "srt://platform.example:9000?streamid=k", disabled: true });
    sameMembers(suite.raw, multistreamTarget);
    assert.match(multistreamTarget.name, /^platform\.example/);
    assert.equal(multistreamTarget.disabled, true);
    await call("multistream.delete", multistreamTarget.id);
  });

  await test("multistream.create", "422 for another scheme", (create) =>
    fails(create({ url: "https://platform.example/live" }), 422, /pattern/));

  await test("multistream.getAll", "the caller's own", async (getAll) => {
    const { statusCode, data } = await getAll();
    assert.equal(statusCode, 200);
    includes(data, id);
    noSecret(suite.raw, targetUrl);
  });

  await test("multistream.update", "name, url and disabled", async (update) => {
    const { statusCode } = await update({ name: "renamed", url: `${targetUrl}-2`, disabled: true }, id);
    assert.equal(statusCode, 204);
  });

  await test("multistream.get", "as it was changed", async (get) => {
    const { statusCode, multistreamTarget } = await get(id);
    assert.equal(statusCode, 200);
    sameMembers(suite.raw, multistreamTarget);
    noSecret(suite.raw, targetUrl);
    assert.equal(multistreamTarget.id, id);
    assert.equal(multistreamTarget.name, "renamed");
    assert.equal(multistreamTarget.disabled, true);
  });

  await test("multistream.delete", "is gone afterwards", async (remove) => {
    assert.equal((await remove(id)).statusCode, 204);
    await fails(call("multistream.get", id), 404, /^not found$/);
  });
}

export async function sessions({ suite, test, call, seed }) {
  const check = (session) => {
    checkOwned(session);
    assert.equal(session.id, seed.sessionId);
    assert.equal(session.kind, "session");
    assert.equal(session.parentId, seed.streamId);
    assert.ok(session.name, "name");
    assert.ok(session.lastSeen >= session.createdAt, "lastSeen");
    assert.ok(session.sourceSegmentsDuration > 0, "sourceSegmentsDuration");
    assert.equal(session.record, true);
    assert.equal(session.recordingStatus, "ready");
    checkUrl(session.recordingUrl);
    checkUrl(session.mp4Url);
  };

  await test("session.get", "a finished one with its recording", async (get) => {
    const { statusCode, session } = await get(seed.sessionId);
    assert.equal(statusCode, 200);
    const { assetId, ...known } = suite.raw; // which the SDK does not know
    assert.equal(assetId, seed.sessionId);
    sameMembers(known, session);
    check(session);
    const { stream } = await call("stream.get", seed.streamId);
    assert.equal(session.playbackId, stream.playbackId);
  });

  await test("session.get", "404 for an unknown id", (get) => fails(get(unknownId), 404, /^not found$/));

  await test("session.getAll", "has it", async (getAll) => {
    const { statusCode, data } = await getAll();
    assert.equal(statusCode, 200);
    check(data.find((s) => s.id === seed.sessionId));
  });

  for (const record of [undefined, true, 1]) {
    await test("session.getRecorded", `with record ${record}`, async (getRecorded) => {
      const { statusCode, data } = await getRecorded(seed.streamId, record);
      assert.equal(statusCode, 200);
      check(data.find((s) => s.id === seed.sessionId));
    });
  }

  for (const record of [false, 0]) {
    await test("session.getRecorded", `not with record ${record}`, async (getRecorded) => {
      const { data } = await getRecorded(seed.streamId, record);
      assert.ok(data.every((s) => s.id !== seed.sessionId), "the recorded session is left out");
    });
  }

  await test("session.getClips", "the clips of a session", async (getClips) => {
    const { statusCode, data } = await getClips(seed.sessionId);
    assert.equal(statusCode, 200);
    checkClip(data, seed);
  });

  await test("session.getClips", "404 for an unknown id", (getClips) => fails(getClips(unknownId), 404, /^Session not found$/));
}

function checkClip(data, seed) {
  includes(data, seed.clipId);
  const clip = data.find((asset) => asset.id === seed.clipId);
  checkOwned(clip);
  assert.equal(clip.source.type, "clip");
  assert.equal(clip.source.sessionId, seed.sessionId);
  assert.equal(clip.status.phase, "ready");
  checkUrl(clip.playbackUrl);
}

// What is stored: assets, their tasks, and how they are played.

import assert from "node:assert/strict";
import { checkOwned, checkPlaybackId, checkUrl, fails, includes, notPlayable, sameMembers, unknownId, uuid } from "./check.mjs";

const profiles = [{ name: "small", width: 426, height: 240, bitrate: 250_000, fps: 30, quality: 27, gop: "2.0", profile: "H264High", encoder: "H.264" }];

// assets makes two that wait, one for its bytes and one for its source, and looks at
// them beside one that is ready.
export async function assets(run) {
  const uploaded = await requestUpload(run);
  const imported = await importSource(run);
  await readAssets(run, uploaded, imported);
  await endAssets(run, uploaded, imported);
}

async function requestUpload({ suite, test }) {
  let uploaded = {};
  await test("asset.create", "with every member", async (create) => {
    const { statusCode, data } = await create({
      name: "upload.mp4",
      staticMp4: true,
      playbackPolicy: { type: "public" },
      creatorId: { type: "unverified", value: "creator-1" },
      profiles,
      targetSegmentSizeSecs: 4,
    });
    assert.equal(statusCode, 200);
    sameMembers(suite.raw.asset, data.asset);
    for (const url of [data.url, data.tusEndpoint]) {
      checkUrl(url);
      assert.ok(new URL(url).searchParams.get("token"), "token");
    }
    checkOwned(data.asset);
    checkPlaybackId(data.asset);
    assert.equal(data.asset.name, "upload.mp4");
    assert.equal(data.asset.source.type, "directUpload");
    assert.equal(data.asset.status.phase, "uploading");
    assert.equal(data.asset.playbackPolicy.type, "public");
    assert.deepEqual(data.asset.creatorId, { type: "unverified", value: "creator-1" });
    assert.deepEqual(data.asset.profiles, profiles);
    assert.match(data.task.id, uuid);
    uploaded = { id: data.asset.id, taskId: data.task.id };
  });

  return uploaded;
}

async function importSource({ suite, test, receiver }) {
  const url = `${receiver.url}/source.mp4`;
  let imported = {};
  await test("asset.createViaUrl", "201 for a new one", async (create) => {
    const { statusCode, twoHundredAndOneApplicationJsonData: data } = await create({ name: "source.mp4", url, creatorId: "creator-2" });
    assert.equal(statusCode, 201);
    sameMembers(suite.raw.asset, data.asset);
    checkOwned(data.asset);
    checkPlaybackId(data.asset);
    assert.equal(data.asset.name, "source.mp4");
    assert.equal(data.asset.source.type, "url");
    assert.equal(data.asset.source.url, url);
    assert.equal(data.asset.status.phase, "waiting");
    assert.deepEqual(data.asset.creatorId, { type: "unverified", value: "creator-2" });
    assert.match(data.task.id, uuid);
    imported = { id: data.asset.id, taskId: data.task.id, url };
  });

  await test("asset.createViaUrl", "200 for one that is on its way", async (create) => {
    const { statusCode, twoHundredApplicationJsonData: data } = await create({ name: "source.mp4", url });
    assert.equal(statusCode, 200);
    assert.equal(data.asset.id, imported.id);
    assert.equal(data.task.id, imported.taskId);
  });

  await test("asset.createViaUrl", "422 for another scheme", (create) =>
    fails(create({ name: "x", url: "ftp://127.0.0.1/x" }), 422, /pattern/));

  return imported;
}

async function readAssets({ suite, test, call, seed }, uploaded, imported) {
  await test("asset.get", "a ready one", async (get) => {
    const { statusCode, asset } = await get(seed.assetId);
    assert.equal(statusCode, 200);
    sameMembers(suite.raw, asset);
    checkOwned(asset);
    assert.equal(asset.id, seed.assetId);
    assert.equal(asset.playbackId, seed.playbackId);
    assert.equal(asset.status.phase, "ready");
    assert.ok(asset.status.updatedAt > 0, "status.updatedAt");
    checkUrl(asset.playbackUrl);
    checkUrl(asset.downloadUrl);
    assert.ok(asset.size > 0, "size");
    assert.ok(asset.videoSpec.format, "videoSpec.format");
    assert.ok(asset.videoSpec.duration > 0, "videoSpec.duration");
  });

  await test("asset.get", "one that waits for its bytes", async (get) => {
    const { asset } = await get(uploaded.id);
    sameMembers(suite.raw, asset);
    assert.equal(asset.status.phase, "uploading");
    assert.equal(asset.downloadUrl, undefined);
  });

  await test("asset.get", "404 for an unknown id", (get) => fails(get(unknownId), 404, /not found/i));

  await test("asset.getAll", "has them all", async (getAll) => {
    const { statusCode, data } = await getAll();
    assert.equal(statusCode, 200);
    includes(data, seed.assetId, seed.clipId, uploaded.id, imported.id);
  });

  await test("asset.update", "a ready one", async (update) => {
    const { statusCode, asset } = await update({ name: "renamed", creatorId: "creator-3", playbackPolicy: { type: "public" } }, seed.assetId);
    assert.equal(statusCode, 200);
    sameMembers(suite.raw, asset);
    assert.equal(asset.id, seed.assetId);
    assert.equal(asset.name, "renamed");
    assert.deepEqual(asset.creatorId, { type: "unverified", value: "creator-3" });
    assert.equal((await call("asset.get", seed.assetId)).asset.name, "renamed");
  });

  await test("asset.update", "422 for one that is not ready", (update) =>
    fails(update({ name: "x" }, uploaded.id), 422, /^asset is not ready$/));
}

async function endAssets({ test, call }, uploaded, imported) {
  await test("task.get", "that of an upload waits", async (get) => {
    const { task } = await get(uploaded.taskId);
    assert.equal(task.type, "upload");
    assert.equal(task.status.phase, "pending");
    assert.equal(task.outputAssetId, uploaded.id);
    assert.deepEqual(task.params.upload.profiles, profiles);
  });

  await test("task.get", "that of an import is queued", async (get) => {
    const { task } = await get(imported.taskId);
    assert.equal(task.type, "upload");
    assert.ok(["waiting", "running"].includes(task.status.phase), task.status.phase);
    assert.equal(task.outputAssetId, imported.id);
    assert.equal(task.params.upload.url, imported.url);
  });

  await test("playback.get", "422 for an asset that is not ready", async (get) => {
    const { asset } = await call("asset.get", uploaded.id);
    await fails(get(asset.playbackId), 422, /^asset is not ready for playback$/);
  });

  await test("asset.delete", "is gone afterwards", async (remove) => {
    for (const id of [uploaded.id, imported.id]) {
      assert.equal((await remove(id)).statusCode, 204);
      await fails(call("asset.get", id), 404, /not found/i);
    }
    const { data } = await call("asset.getAll");
    assert.ok(data.every((a) => a.id !== uploaded.id && a.id !== imported.id), "the list has neither");
  });
}

export async function tasks({ test, seed }) {
  await test("task.get", "a completed one", async (get) => {
    const { statusCode, task } = await get(seed.taskId);
    assert.equal(statusCode, 200);
    assert.equal(task.id, seed.taskId);
    assert.equal(task.type, "upload");
    assert.ok(task.createdAt > 0, "createdAt");
    assert.equal(task.outputAssetId, seed.assetId);
    assert.equal(task.status.phase, "completed");
    assert.ok(task.status.updatedAt > 0, "status.updatedAt");
    assert.ok(task.params.upload, "params.upload");
    const { assetSpec } = task.output.upload;
    assert.equal(assetSpec.id, seed.assetId);
    assert.ok(assetSpec.name, "assetSpec.name");
    assert.ok(assetSpec.source.type, "assetSpec.source");
  });

  await test("task.get", "404 for an unknown id", (get) => fails(get(unknownId), 404, /not found/));

  await test("task.getAll", "has it", async (getAll) => {
    const { statusCode, data } = await getAll();
    assert.equal(statusCode, 200);
    includes(data, seed.taskId);
    for (const task of data) {
      assert.ok(task.type, "type");
      assert.ok(task.status.phase, "status.phase");
    }
  });
}

export async function playback({ suite, test, call, seed }) {
  const source = (info, hrn) => info.meta.source.find((s) => s.hrn === hrn);

  await test("playback.get", "of an asset", async (get) => {
    const { statusCode, playbackInfo } = await get(seed.playbackId);
    assert.equal(statusCode, 200);
    sameMembers(suite.raw, playbackInfo);
    assert.equal(playbackInfo.type, "vod");
    assert.equal(playbackInfo.meta.live, undefined);
    const hls = source(playbackInfo, "HLS (TS)");
    assert.equal(hls.type, "html5/application/vnd.apple.mpegurl");
    const { asset } = await call("asset.get", seed.assetId);
    assert.equal(hls.url, asset.playbackUrl);
  });

  await test("playback.get", "of an idle stream with a policy", async (get) => {
    const { stream } = await call("stream.create", { name: "gated", playbackPolicy: { type: "jwt" } });
    const { playbackInfo } = await get(stream.playbackId);
    sameMembers(suite.raw, playbackInfo);
    assert.equal(playbackInfo.type, "live");
    assert.equal(playbackInfo.meta.live, 0);
    assert.equal(playbackInfo.meta.playbackPolicy.type, "jwt");
    assert.ok(source(playbackInfo, "HLS (TS)").url.endsWith(`/hls/${stream.playbackId}/index.m3u8`), "HLS");
    const webrtc = source(playbackInfo, "WebRTC (H264)");
    assert.equal(webrtc.type, "html5/video/h264");
    assert.ok(webrtc.url.endsWith(`/webrtc/${stream.playbackId}`), "WebRTC");
    await call("stream.delete", stream.id);
    await notPlayable(get(stream.playbackId), stream.playbackId);
  });

  await test("playback.get", "of a session", async (get) => {
    const { playbackInfo } = await get(seed.sessionId);
    sameMembers(suite.raw, playbackInfo);
    assert.equal(playbackInfo.type, "recording");
    const { session } = await call("session.get", seed.sessionId);
    assert.equal(source(playbackInfo, "HLS (TS)").url, session.recordingUrl);
  });

  await test("playback.get", "404 as the SDK's own error", (get) => notPlayable(get("0000000000000000"), "0000000000000000"));
}

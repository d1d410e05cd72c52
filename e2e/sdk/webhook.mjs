// Webhooks, and what their log tells of a delivery.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { checkOwned, eventually, fails, includes, noSecret, sameMembers, unknownId, uuid } from "./check.mjs";

export async function webhooks(run) {
  const { suite, test, call, seed, receiver } = run;
  const url = `${receiver.url}/hook`;
  const sharedSecret = "a secret between the two of us";
  let id;

  await test("webhook.create", "with every member", async (create) => {
    const { statusCode, webhook } = await create({ name: "of a stream", url, events: ["stream.started", "stream.idle"], sharedSecret, streamId: seed.streamId });
    assert.equal(statusCode, 200);
    sameMembers(suite.raw, webhook);
    noSecret(suite.raw, sharedSecret);
    checkOwned(webhook);
    assert.equal(webhook.kind, "webhook");
    assert.equal(webhook.name, "of a stream");
    assert.equal(webhook.url, url);
    assert.deepEqual(webhook.events, ["stream.started", "stream.idle"]);
    assert.equal(webhook.streamId, seed.streamId);
    id = webhook.id;
  });

  await test("webhook.create", "422 for another scheme", (create) =>
    fails(create({ name: "x", url: "gopher://127.0.0.1/", events: [] }), 422, /pattern/));

  await test("webhook.update", "all of it", async (update) => {
    const { statusCode, webhook } = await update({ name: "of assets", url: `${url}?v=2`, events: ["asset.created"], sharedSecret }, id);
    assert.equal(statusCode, 200);
    sameMembers(suite.raw, webhook);
    noSecret(suite.raw, sharedSecret);
    assert.equal(webhook.id, id);
    assert.equal(webhook.name, "of assets");
    assert.equal(webhook.url, `${url}?v=2`);
    assert.deepEqual(webhook.events, ["asset.created"]);
    assert.equal(webhook.streamId, undefined);
  });

  await test("webhook.get", "as it was changed", async (get) => {
    const { statusCode, webhook } = await get(id);
    assert.equal(statusCode, 200);
    sameMembers(suite.raw, webhook);
    noSecret(suite.raw, sharedSecret);
    assert.equal(webhook.name, "of assets");
    assert.equal(webhook.url, `${url}?v=2`);
  });

  await test("webhook.get", "404 for an unknown id", (get) => fails(get(unknownId), 404, /not found/));

  await test("webhook.getAll", "has it", async (getAll) => {
    const { statusCode, data } = await getAll();
    assert.equal(statusCode, 200);
    includes(data, id);
    noSecret(suite.raw, sharedSecret);
  });

  await webhookLogs(run, { id, url: `${url}?v=2`, sharedSecret });

  await test("webhook.delete", "answers what it was, and is gone afterwards", async (remove) => {
    const { statusCode, webhook } = await remove(id);
    assert.equal(statusCode, 200);
    sameMembers(suite.raw, webhook);
    assert.equal(webhook.id, id);
    assert.equal(webhook.name, "of assets");
    await fails(call("webhook.get", id), 404, /not found/);
  });
}

// webhookLogs makes an event, waits for its delivery, and follows it in the log.
async function webhookLogs({ suite, test, call, receiver }, { id, url, sharedSecret }) {
  let first;
  let event;

  await test("webhook.getLogs", "a delivery that was taken", async (getLogs) => {
    const { data } = await call("asset.create", { name: "to be told of" });
    await eventually(() => assert.equal(receiver.deliveries.length, 1));
    event = checkDelivery(receiver.deliveries[0], id, sharedSecret);
    assert.equal(event.event, "asset.created");
    assert.equal(event.payload.asset.id, data.asset.id);
    assert.equal(event.payload.asset.snapshot.name, "to be told of");

    first = await eventually(async () => {
      const { statusCode, data: logs } = await getLogs(id);
      assert.equal(statusCode, 200);
      assert.equal(logs.length, 1);
      return logs[0];
    });
    checkLog(first, { webhookId: id, url, event, sharedSecret });
    assert.equal(first.success, true);
    assert.equal(first.response.status, 200);
    assert.equal(Buffer.from(first.response.body, "base64").toString("utf8"), "received");
    await call("asset.delete", data.asset.id);
  });

  await test("webhook.getLog", "the same entry", async (getLog) => {
    const { statusCode, webhookLog } = await getLog(id, first.id);
    assert.equal(statusCode, 200);
    assert.deepEqual(webhookLog, first);
  });

  await test("webhook.getLog", "404 for an unknown id", (getLog) => fails(getLog(id, unknownId), 404, /^webhook log not found$/));

  await test("webhook.resendLog", "the same event, told again and refused", async (resend) => {
    receiver.answer = { status: 410, body: "no more" };
    const { statusCode, webhookLog } = await resend(id, first.id);
    assert.equal(statusCode, 200);
    assert.notEqual(webhookLog.id, first.id);
    assert.equal(receiver.deliveries.length, 2);
    const again = checkDelivery(receiver.deliveries[1], id, sharedSecret);
    assert.equal(again.id, event.id);
    assert.equal(again.createdAt, event.createdAt);
    assert.ok(again.timestamp >= event.timestamp, "timestamp");

    checkLog(webhookLog, { webhookId: id, url, event: again, sharedSecret });
    assert.equal(webhookLog.success, false);
    assert.equal(webhookLog.response.status, 410);
    assert.equal(Buffer.from(webhookLog.response.body, "base64").toString("utf8"), "no more");
    const { data } = await call("webhook.getLogs", id);
    assert.deepEqual(data.map((log) => log.id), [webhookLog.id, first.id]);
  });

  await test("webhook.get", "tells of the last failure", async (get) => {
    const webhook = await eventually(async () => {
      const { webhook } = await get(id);
      assert.ok(webhook.status?.lastFailure, "status.lastFailure");
      return webhook;
    });
    sameMembers(suite.raw, webhook);
    assert.ok(webhook.status.lastTriggeredAt > 0, "lastTriggeredAt");
    assert.equal(webhook.status.lastFailure.statusCode, 410);
    assert.ok(webhook.status.lastFailure.timestamp > 0, "lastFailure.timestamp");
    assert.equal(Buffer.from(webhook.status.lastFailure.response, "base64").toString("utf8"), "no more");
  });
}

// checkDelivery returns the event of a delivery whose signature holds.
function checkDelivery({ headers, body }, webhookId, sharedSecret) {
  const event = JSON.parse(body);
  assert.match(headers["content-type"], /^application\/json/);
  const signature = createHmac("sha256", sharedSecret).update(body).digest("hex");
  assert.equal(headers["livepeer-signature"], `t=${event.timestamp},v1=${signature}`);
  assert.match(event.id, uuid);
  assert.equal(event.webhookId, webhookId);
  assert.ok(event.createdAt > 0, "createdAt");
  return event;
}

function checkLog(log, { webhookId, url, event, sharedSecret }) {
  assert.match(log.id, uuid);
  assert.equal(log.webhookId, webhookId);
  assert.equal(log.event, event.event);
  assert.ok(log.createdAt > 0, "createdAt");
  assert.ok(log.duration >= 0, "duration");
  assert.equal(log.request.url, url);
  assert.equal(log.request.method, "POST");
  assert.ok(Object.keys(log.request.headers).length > 0, "request.headers");
  assert.deepEqual(JSON.parse(log.request.body), event);
  noSecret(log, sharedSecret);
}

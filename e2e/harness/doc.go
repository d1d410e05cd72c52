// Package harness is what the end-to-end tests share: it builds weir, starts it on SQLite and
// on PostgreSQL on free ports of 127.0.0.1 ([Weir]), makes media with ffmpeg, opens pages in
// Chromium ([Browser]) and reads playlists and events.
//
// The tests drive the built binary from outside, as its users do. They see only what weir
// answers, prints and leaves on the disk. What must be in the database beforehand, because
// only media engines make it, is written through package store before weir starts.
//
//   - e2e/service: accounts, commands, webhooks, nodes, floods, secrets, the official SDK.
//   - e2e/vod: uploads, transcoding, faults of sources and storage, kill -9 in the middle.
//   - e2e/manual: every program that the manual shows, and those in examples/.
//   - e2e/console: the console in Chromium, from the first start to the log-out; every page, for everybody.
//   - e2e/live: encoders and players of every kind, recordings, clips, multistream, several nodes.
//   - e2e/faults: databases, buckets, nodes and connections between them that fail beneath streams and viewers.
//   - e2e/busy: a command that runs all of these on a machine that is too busy for them.
//
// Media goes to a real S3 server (package s3test), is taken apart by parsers that others wrote
// (e2e/player/parse.mjs) and played with the players of the field (e2e/player). Live streams
// are sent on to the RTMP servers of others (e2e/push). The frames of a [Film] carry their numbers, so
// that a test can tell which of them came out, and whether they are still the same bytes.
package harness

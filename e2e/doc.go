// Package e2e drives the built binary from outside, as its users do: over HTTP,
// with the official SDK, with signals, and with kill -9 in the middle.
//
// The tests start weir on SQLite and on PostgreSQL on free ports of 127.0.0.1
// (start, in weir_test.go) and see only what it answers, prints and leaves on the
// disk. What must be in the database beforehand, because only media engines make
// it, is written through package store before weir starts.
//
// Media is made by ffmpeg (media_test.go), goes to a real S3 server (package s3test),
// is taken apart by parsers that others wrote (outputs_test.go, player/parse.mjs) and
// played in Chromium with the players of the field (browser_test.go, player/play.js). Live
// streams are sent on to the RTMP servers of others (live_multistream_test.go, push).
//
// Whether audio and video belong together is measured by flash and beep, at the times
// at which a player shows them: one pair for RTMP and SRT in TestLive, every encoder with
// every player in TestLiveMatrix (live_matrix_test.go), beside a log of what weir
// delivered when.
package e2e

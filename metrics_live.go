package main

import (
	"weir/internal/ingest"
	"weir/internal/live"
	"weir/internal/playback"
)

// watchLive shows what is on air and who watches as metrics.
func (p *parts) watchLive(m *metrics) {
	viewers := func(read func(playback.Stats) int64) func() float64 {
		return func() float64 { return float64(read(p.playback.Stats())) }
	}
	m.watch(
		gauge{"weir_viewers", "Viewers who fetched media from this node in the last 30 seconds.", viewers(func(s playback.Stats) int64 { return s.Viewers })},
		gauge{"weir_playlist_requests_waiting", "Requests that wait for the next part in a live playlist.", viewers(func(s playback.Stats) int64 { return s.Reloads })},
		gauge{"weir_part_requests_waiting", "Requests that wait for a part of a live stream.", viewers(func(s playback.Stats) int64 { return s.Waits })},
		gauge{"weir_edge_requests_total", "Playlists, parts and segments that this node asked others for.", viewers(func(s playback.Stats) int64 { return s.Asked })},
	)
	if p.hub == nil {
		return
	}
	onAir := func(read func(live.Stats) int64) func() float64 {
		return func() float64 { return float64(read(p.hub.Stats())) }
	}
	doors := func(read func(ingest.Stats) int64) func() float64 {
		return func() float64 { return float64(read(p.doors.Stats())) }
	}
	m.watch(
		gauge{"weir_live_streams", "Streams whose encoder sends to this node.", onAir(func(s live.Stats) int64 { return s.OnAir })},
		gauge{"weir_live_sessions", "Sessions that this node has open, also those whose encoder is away.", onAir(func(s live.Stats) int64 { return s.Sessions })},
		gauge{"weir_live_streams_unhealthy", "Streams on air on this node that have issues.", onAir(func(s live.Stats) int64 { return s.Unhealthy })},
		gauge{"weir_live_received_bytes_total", "Bytes of media that encoders sent.", onAir(func(s live.Stats) int64 { return s.BytesIn })},
		gauge{"weir_live_parts_total", "Parts of segments that were written.", onAir(func(s live.Stats) int64 { return s.Parts })},
		gauge{"weir_live_lost_frames_total", "Frames that renditions, multistream targets and viewers over WebRTC were too slow for.", onAir(func(s live.Stats) int64 { return s.LostFrames })},
		gauge{"weir_ingest_connections", "Connections of encoders.", doors(func(s ingest.Stats) int64 { return s.Connections })},
		gauge{"weir_ingest_admitted_total", "Encoders that came with a good stream key.", onAir(func(s live.Stats) int64 { return s.Admitted })},
		gauge{"weir_ingest_refused_total", "Encoders that came with a stream key that is not good, or of a suspended stream.", onAir(func(s live.Stats) int64 { return s.Refused })},
		gauge{"weir_ingest_turned_away_total", "Connections that were closed at once because there were too many.", doors(func(s ingest.Stats) int64 { return s.TurnedAway })},
	)
	if p.rtc != nil {
		m.watch(gauge{"weir_webrtc_connections", "Connections over WebRTC, of encoders and of viewers.", func() float64 { return float64(p.rtc.Peers()) }})
	}
}

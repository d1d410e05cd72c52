package work

import (
	"context"
	"time"

	"weir/internal/caption"
	"weir/internal/media"
	"weir/internal/weir"
)

// clipText stores the texts of a clip: the cues of its source that are shown in it, with the times that
// they have there. Where the clip begins in them stands in the track, so nothing is rounded.
func (c *Clips) clipText(ctx context.Context, t weir.Task, source clipSource, start, end time.Duration) (tracks []weir.AssetTrack, err error) {
	if len(source.text) == 0 {
		return nil, nil
	}
	times := media.NewTimes(source.all()...)
	for _, track := range source.text {
		if track.Type != weir.TextTrack || !track.Playable() {
			continue
		}
		cues, err := media.LoadText(ctx, c.Media, media.AssetFolder(source.asset), track.Object)
		if weir.IsNotFound(err) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		from, to := track.StartTime()+times.Played(start), track.StartTime()+times.Played(end)
		cues = caption.Between(cues, from, to)
		if len(cues) == 0 {
			continue
		}
		n, now := track, weir.At(time.Now())
		n.ID, n.CreatedAt, n.Status, n.Start = weir.NewID(), now, weir.TrackStatus{Phase: weir.TrackReady, UpdatedAt: now}, from.Seconds()
		file, err := media.SaveText(ctx, c.Media, media.AssetFolder(t.OutputAssetID), n.ID, cues)
		if err != nil {
			return nil, err
		}
		n.Object, n.Size, n.SHA256, n.Cues = file.Object, file.Size, file.SHA256, file.Cues
		tracks = append(tracks, n)
	}
	return tracks, nil
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"

	"weir/internal/config"
	"weir/internal/store"
	"weir/internal/weir"
)

type streamCmd struct {
	Create streamCreateCmd `cmd:"" settings:"store,address,ingest" help:"Make a stream and print where to send it and where to watch it."`
	List   streamListCmd   `cmd:"" settings:"store" help:"List the streams, without their keys."`
	Delete streamDeleteCmd `cmd:"" settings:"store" help:"Delete streams; encoders that send to them are disconnected."`
}

type streamCreateCmd struct {
	Name    string   `arg:"" help:"What the stream is called."`
	Record  bool     `help:"Keep every broadcast as an asset."`
	Profile []string `sep:"none" placeholder:"NAME[:BITRATE]" help:"A rendition, such as 720p:3M; may be given several times. none = only what the encoder sends. Default: 240p, 360p, 480p and 720p."`
	User    string   `placeholder:"EMAIL" help:"Account the stream belongs to; default: the first account."`
}

func (c streamCreateCmd) Run(ctx context.Context, cfg *config.Config) error {
	profiles, err := c.profiles()
	if err != nil {
		return err
	}
	var stream weir.Stream
	err = withStore(ctx, cfg, func(st *store.Store) error {
		u, err := findUser(ctx, st, c.User)
		if err != nil {
			return err
		}
		caller := &weir.Caller{UserID: u.ID, ProjectID: u.DefaultProjectID}
		stream, err = weir.NewStream{Name: c.Name, Record: c.Record, Profiles: profiles}.Stream(caller, time.Now())
		if err != nil {
			return err
		}
		return st.Tx(ctx, func(tx *store.Tx) error { return tx.CreateStream(ctx, &stream) })
	})
	if err != nil {
		return err
	}
	base, key := cfg.LocalURL(0), stream.StreamKey.Reveal()
	rtmp := cmp.Or(cfg.RTMPServer(base), "none: this weir takes no RTMP; give it an address with --rtmp")
	var text strings.Builder
	fmt.Fprintf(&text, "OBS server  %s\nstream key  %s  (as good as a password)\n", rtmp, key)
	for _, a := range cfg.IngestAddresses(base, key) {
		if !strings.HasPrefix(a.Protocol, "RTMP") {
			fmt.Fprintf(&text, "%-10s  %s\n", a.Protocol, a.URL)
		}
	}
	fmt.Fprintf(&text, "watch       %s/play/%s\nid          %s\n", base, stream.PlaybackID, stream.ID)
	return show(os.Stdout, "%s", text.String())
}

// profiles returns the renditions; nil = the default ones.
func (c streamCreateCmd) profiles() (*[]weir.Profile, error) {
	if len(c.Profile) == 0 {
		return nil, nil
	}
	all := []weir.Profile{}
	for _, text := range c.Profile {
		if text == "none" {
			if len(c.Profile) > 1 {
				return nil, weir.Errorf(weir.Invalid, "--profile none: can't be combined with other renditions")
			}
			return &all, nil
		}
		p, err := parseProfile(text)
		if err != nil {
			return nil, err
		}
		p.FPS = new(0) // that of the source
		all = append(all, p)
	}
	return &all, nil
}

type streamListCmd struct {
	User string `placeholder:"EMAIL" help:"Account whose streams to list; default: all accounts."`
}

func (c streamListCmd) Run(ctx context.Context, cfg *config.Config) error {
	return withStore(ctx, cfg, func(st *store.Store) error {
		userID := ""
		if c.User != "" {
			u, err := findUser(ctx, st, c.User)
			if err != nil {
				return err
			}
			userID = u.ID
		}
		return printTable(ctx, "ID\tNAME\tSTATE\tPLAYBACK ID\tCREATED\tLAST ON AIR", userID, st.Streams, func(s weir.Stream) (string, error) {
			state := "idle"
			switch {
			case s.IsActive:
				state = "on air"
			case s.Suspended:
				state = "suspended"
			}
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", s.ID, cell(s.Name), state, s.PlaybackID, minute(s.CreatedAt), minute(s.LastSeen)), nil
		})
	})
}

// cell returns a text of a caller for a table: its control characters would change the table or the terminal.
func cell(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

type streamDeleteCmd struct {
	ID []string `arg:"" help:"Ids of the streams, as weir stream list shows them."`
}

func (c streamDeleteCmd) Run(ctx context.Context, cfg *config.Config) error {
	return withStore(ctx, cfg, func(st *store.Store) error {
		for _, id := range c.ID {
			var stream weir.Stream
			err := st.Tx(ctx, func(tx *store.Tx) (err error) {
				stream, err = tx.UpdateStream(ctx, id, func(s *weir.Stream) error {
					if s.Deleted {
						return weir.Errorf(weir.NotFound, "it was deleted before")
					}
					s.Deleted = true
					return nil
				})
				return err
			})
			if weir.IsNotFound(err) {
				return fmt.Errorf("there is no stream with the id %s; weir stream list shows them", id)
			}
			if err != nil {
				return err
			}
			if err := show(os.Stdout, "deleted %s  %s\n", id, cell(stream.Name)); err != nil {
				return err
			}
		}
		return nil
	})
}

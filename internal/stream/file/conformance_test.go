package file

import (
	"path/filepath"
	"testing"

	"synctl/internal/stream"
	"synctl/internal/testkit/streamtest"
)

func TestConformance(t *testing.T) {
	streamtest.Run(t, streamtest.Factory{
		Create: func(t *testing.T, n int) *streamtest.Fixture {
			o := Options{Shards: n, SegmentBytes: 3000} // small, so that every test crosses segments
			dir := newStream(t, o)
			open := func(t *testing.T) stream.Stream {
				st, err := Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				return st
			}
			return &streamtest.Fixture{
				Open: open,
				OpenSink: func(t *testing.T, o streamtest.SinkOptions) stream.Sink {
					return openSink(t, dir, SinkOptions{KeyBy: o.KeyBy, Floor: o.Floor})
				},
				CreateAgain: func(*testing.T) error { return Create(dir, o) },
				Trim: func(t *testing.T, _, before string) {
					if _, err := open(t).(*Stream).Trim(t.Context(), stream.Position{Kind: stream.AtSequence, Sequence: before}); err != nil {
						t.Fatal(err)
					}
				},
			}
		},
		Missing: func(t *testing.T) error {
			_, err := Open(filepath.Join(t.TempDir(), "nowhere"))
			return err
		},
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"synctl/internal/fault"
	"synctl/internal/record"
	"synctl/internal/stream"
	"synctl/internal/stream/file"
	"synctl/internal/stream/kinesis"
)

const streamHint = "Write file:DIR, kinesis://NAME or a stream's ARN."

// isStreamURL tells whether an endpoint is a stream, of either kind.
func isStreamURL(url string) bool { return strings.HasPrefix(url, "file:") || kinesis.IsURL(url) }

// streamDir is the directory that file:DIR names. file:///DIR is understood, too.
func streamDir(url string) (string, error) {
	dir, ok := strings.CutPrefix(url, "file:")
	if rest, isURL := strings.CutPrefix(dir, "//"); isURL {
		if dir = rest; !strings.HasPrefix(dir, "/") {
			return "", fault.New(fault.Usage, "Write file:DIR, or file:///DIR for an absolute path.", "%s: a directory of another host cannot be used", url)
		}
	}
	if !ok || dir == "" {
		return "", fault.New(fault.Usage, streamHint, "%q is not a stream", url)
	}
	return dir, nil
}

// openStream opens the stream of either kind to read and to manage.
func openStream(ctx context.Context, url string, log *slog.Logger) (stream.Stream, error) {
	if kinesis.IsURL(url) {
		o, err := kinesis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		o.Logger = log
		return kinesis.Open(ctx, o)
	}
	dir, err := streamDir(url)
	if err != nil {
		return nil, err
	}
	return file.Open(dir)
}

// streamSinkOptions are what publishing to a stream of either kind can be told; the zero value is the default.
type streamSinkOptions struct {
	KeyBy stream.KeyBy
	Floor func() record.LSN // nil: records are published without a floor

	// Of Kinesis alone: on disk nothing waits for a request to fill, and every record fits.
	Linger      time.Duration // default 20ms; negative: none
	InFlight    int           // requests; default 8
	QueueBytes  int           // of batches not yet acknowledged; default 64 MiB
	DeadLetters kinesis.DeadLetters
}

// openStreamSink opens the stream of either kind to publish. ctx is the run's.
func openStreamSink(ctx context.Context, url string, o streamSinkOptions, log *slog.Logger) (stream.Sink, error) {
	if kinesis.IsURL(url) {
		at, err := kinesis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		at.Logger = log
		return kinesis.OpenSink(ctx, at, kinesis.SinkOptions{KeyBy: o.KeyBy, Floor: o.Floor, Linger: o.Linger,
			InFlight: o.InFlight, QueueBytes: o.QueueBytes, DeadLetters: o.DeadLetters})
	}
	dir, err := streamDir(url)
	if err != nil {
		return nil, err
	}
	return file.OpenSink(ctx, dir, file.SinkOptions{KeyBy: o.KeyBy, Floor: o.Floor, Logger: log})
}

// newStream is what a stream is made with.
type newStream struct {
	Shards int
	// Of file: alone. 0: for ever, unbounded, 64 MiB.
	Retention                    time.Duration
	RetentionBytes, SegmentBytes int64
}

// createStream makes the stream if there is none, and says whether it did. One that is there must have as many open
// shards as are asked for.
func createStream(ctx context.Context, url string, n newStream, log *slog.Logger) (created bool, err error) {
	if n.Shards < 1 {
		return false, fault.New(fault.Usage, "Say how many shards it shall have, at least 1.", "create %s: %d shards", url, n.Shards)
	}
	err = makeStream(ctx, url, n)
	if !errors.Is(err, stream.ErrExists) {
		return err == nil, err
	}
	s, err := openStream(ctx, url, log)
	if err != nil {
		return false, err
	}
	defer s.Close()
	d, err := s.Describe(ctx)
	if err != nil {
		return false, err
	}
	return false, sameStream(url, n, d)
}

func makeStream(ctx context.Context, url string, n newStream) error {
	if kinesis.IsURL(url) {
		o, err := kinesis.ParseURL(url)
		if err != nil {
			return err
		}
		if n.Retention != 0 || n.RetentionBytes != 0 || n.SegmentBytes != 0 {
			return fault.New(fault.Usage, "Set a Kinesis stream's retention with: aws kinesis increase-stream-retention-period.",
				"create %s: --retention, --retention-bytes and --segment-bytes are of file: streams", url)
		}
		return kinesis.Create(ctx, o, n.Shards)
	}
	dir, err := streamDir(url)
	if err != nil {
		return err
	}
	return file.Create(dir, file.Options{Shards: n.Shards, Retention: n.Retention, RetentionBytes: n.RetentionBytes, SegmentBytes: n.SegmentBytes})
}

// sameStream refuses to pass an existing stream for the one that was asked for.
func sameStream(url string, n newStream, d stream.Description) error {
	open := 0
	for _, s := range d.Shards {
		if s.Open {
			open++
		}
	}
	if open != n.Shards {
		return fault.New(fault.Check, fmt.Sprintf("Use it as it is (--shards %d), or create another one.", open),
			"%s: %w, with %d open shards, not %d", url, stream.ErrExists, open, n.Shards)
	}
	if !kinesis.IsURL(url) && (n.Retention != 0 && n.Retention != d.Retention || n.RetentionBytes != 0 && n.RetentionBytes != d.RetentionBytes) {
		return fault.New(fault.Check, "Retention is settled when a stream is created. Use it as it is, or create another one.",
			"%s: %w, with retention %v and %d bytes (0: unbounded)", url, stream.ErrExists, d.Retention, d.RetentionBytes)
	}
	return nil
}

// listStreams names the streams in a directory, or of an account and region (kinesis://?region=…).
func listStreams(ctx context.Context, url string) ([]stream.Description, error) {
	if rest, ok := strings.CutPrefix(url, "kinesis:"); ok {
		rest = strings.TrimPrefix(rest, "//")
		if rest != "" && !strings.HasPrefix(rest, "?") {
			return nil, fault.New(fault.Usage, "Write kinesis://, with ?region=, &profile= and &endpoint= where the environment does not say.",
				"list %s: it names one stream", url)
		}
		return listKinesis(ctx, rest)
	}
	dir, err := streamDir(url)
	if err != nil {
		return nil, err
	}
	return file.List(ctx, dir)
}

func listKinesis(ctx context.Context, query string) ([]stream.Description, error) {
	// The options come in the URL of a stream; which one does not matter for a list.
	o, err := kinesis.ParseURL("kinesis://any" + query)
	if err != nil {
		return nil, err
	}
	names, err := kinesis.List(ctx, o)
	var found []stream.Description
	for _, name := range names {
		o.Name = name
		found = append(found, stream.Description{Name: name, URL: o.URL()})
	}
	return found, err
}

package bigquery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"cloud.google.com/go/bigquery/storage/apiv1/storagepb"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"synctl/internal/bulk"
	"synctl/internal/fault"
)

// mostTries is how often a stream that makes no progress is opened anew.
const mostTries = 10

// reader reads one stream after the other.
type reader struct {
	source *Source
	schema []byte // IPC message
	at     []int

	stream string
	offset int64 // rows of the stream that were received
	tries  int   // since the last progress
	rpc    storagepb.BigQueryRead_ReadRowsClient
	cancel context.CancelFunc
	idle   *time.Timer
}

// Next implements bulk.Reader.
func (r *reader) Next(ctx context.Context) (*bulk.Batch, error) {
	for {
		if r.stream == "" {
			name, ok := <-r.source.streams
			if !ok {
				return nil, io.EOF
			}
			r.stream, r.offset, r.tries = name, 0, 0
		}
		if r.rpc == nil {
			if err := r.open(ctx); err != nil {
				if err := r.recover(ctx, err); err != nil {
					return nil, err
				}
				continue
			}
		}
		r.idle.Reset(r.source.o.Idle)
		resp, err := r.rpc.Recv()
		r.idle.Stop() // it is our own time that passes until the next call
		switch {
		case errors.Is(err, io.EOF):
			r.leave()
			r.stream = ""
		case err != nil:
			r.leave()
			if err := r.recover(ctx, err); err != nil {
				return nil, err
			}
		default:
			b, err := r.decode(resp)
			if err != nil || b != nil {
				return b, err
			}
		}
	}
}

// open begins the stream, or goes on where it broke.
func (r *reader) open(ctx context.Context) error {
	if err := r.source.gate.enter(ctx); err != nil {
		return err
	}
	call, cancel := context.WithCancel(ctx)
	rpc, err := r.source.client.ReadRows(call, &storagepb.ReadRowsRequest{ReadStream: r.stream, Offset: r.offset})
	if err != nil {
		cancel()
		r.source.gate.leave()
		return err
	}
	r.rpc, r.cancel, r.idle = rpc, cancel, time.AfterFunc(r.source.o.Idle, cancel)
	return nil
}

// leave ends the call.
func (r *reader) leave() {
	if r.rpc == nil {
		return
	}
	r.idle.Stop()
	r.cancel()
	r.rpc = nil
	r.source.gate.leave()
}

// recover waits until a broken stream may be opened anew; an error when that cannot help.
func (r *reader) recover(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	code := status.Code(cause)
	idle := code == codes.Canceled // nobody but our own timer ends the call while ctx lives
	r.tries++
	if !idle && !retryable(cause) || r.tries > mostTries {
		return fault.New(classOf(code), "Nothing was kept. Run the same command again.", "read %s, stream %s at row %d, try %d: %w", r.source.name, short(r.stream), r.offset+1, r.tries, cause)
	}
	r.source.retries.Add(1)
	wait := r.source.o.Backoff << min(r.tries-1, 6)
	wait = wait/2 + rand.N(wait/2+1)
	reason := cause.Error()
	if idle {
		reason = fmt.Sprintf("no response for %s", r.source.o.Idle)
	}
	if code == codes.ResourceExhausted {
		r.source.throttled.Add(1)
		if d := retryDelay(cause); d > 0 {
			wait = d + rand.N(d/4+1)
		}
		r.source.o.Log.Warn("BigQuery's quota is exhausted: waiting, with fewer streams", "stream", short(r.stream), "wait", wait, "streams", r.source.gate.shrink())
	} else {
		r.source.o.Log.Info("stream broke, going on where it was", "stream", short(r.stream), "row", r.offset+1, "wait", wait, "reason", reason)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func classOf(c codes.Code) fault.Class {
	switch c {
	case codes.Unavailable, codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted, codes.DeadlineExceeded:
		return fault.Unreachable
	}
	return fault.Failed
}

func retryable(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.Internal, codes.ResourceExhausted:
		return true
	}
	return errors.Is(err, io.ErrUnexpectedEOF)
}

// retryDelay is how long the server wants us to wait; 0 when it does not say.
func retryDelay(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

func short(stream string) string { return stream[strings.LastIndexByte(stream, '/')+1:] }

// decode turns a response into a batch; nil for one without rows.
func (r *reader) decode(resp *storagepb.ReadRowsResponse) (b *bulk.Batch, err error) {
	defer func() {
		if p := recover(); p != nil {
			b, err = nil, fault.New(fault.Failed, "Nothing was kept. Run again.", "read %s, stream %s: a response cannot be decoded: %v", r.source.name, short(r.stream), p)
		}
	}()
	if old := r.source.throttle.Swap(resp.GetThrottleState().GetThrottlePercent()); old == 0 && resp.GetThrottleState().GetThrottlePercent() > 0 {
		r.source.o.Log.Warn("BigQuery throttles", "percent", resp.GetThrottleState().GetThrottlePercent())
	}
	data := resp.GetArrowRecordBatch().GetSerializedRecordBatch()
	if len(data) == 0 {
		return nil, nil
	}
	in, err := ipc.NewReader(io.MultiReader(bytes.NewReader(r.schema), bytes.NewReader(data)))
	if err != nil {
		return nil, r.undecodable(err)
	}
	defer in.Release()
	if !in.Next() {
		return nil, r.undecodable(errors.Join(in.Err(), errors.New("it holds no batch")))
	}
	rb := in.RecordBatch()
	if n := resp.GetRowCount(); n != rb.NumRows() {
		return nil, r.undecodable(fmt.Errorf("it says %d rows and holds %d", n, rb.NumRows()))
	}
	cols := make([]arrow.Array, len(r.at))
	fields := make([]arrow.Field, len(r.at))
	for i, at := range r.at {
		cols[i], fields[i] = rb.Column(at), rb.Schema().Field(at)
	}
	out := array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, rb.NumRows()) // keeps the columns
	b = &bulk.Batch{Part: r.source.name + " stream " + short(r.stream), First: r.offset + 1, Arrow: out, Rows: int(out.NumRows()), Whole: bulk.WholeArrow(out)}
	r.offset += out.NumRows()
	r.tries = 0
	return b, nil
}

func (r *reader) undecodable(err error) error {
	return fault.New(fault.Failed, "Nothing was kept. Run again.", "read %s, stream %s at row %d: the response is damaged: %w", r.source.name, short(r.stream), r.offset+1, err)
}

// Close implements bulk.Reader.
func (r *reader) Close() error {
	r.leave()
	return nil
}

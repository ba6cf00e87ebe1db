// Package bigqueryfake is a BigQuery Storage Read endpoint on a local port, with faults on demand: Google's own generated
// server, so that Google's own client can be in front of it. Only tests import it.
package bigqueryfake

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigquery/storage/apiv1/storagepb"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Table is what a table holds.
type Table struct {
	Rows      arrow.RecordBatch
	BatchRows int64 // rows of one response; 0: 100
	View      bool
	// NeedsFilter makes it a table with require_partition_filter.
	NeedsFilter bool
	// EncodeOnce keeps the bytes of every response for the next time that it is asked for, so that a benchmark measures the reader.
	EncodeOnce bool
}

// Faults go wrong on purpose. Zero is a server without faults.
type Faults struct {
	// BeforeResponse is asked before every response of a stream, which stands at row offset of it; an error ends the call.
	BeforeResponse func(stream int, offset int64) error
	// BeforeOpen is asked at every ReadRows.
	BeforeOpen func(stream int, offset int64) error
	// Delay is slept before a response; the client's patience may be shorter.
	Delay func(stream int, offset int64) time.Duration
	// ThrottlePercent is told in every response.
	ThrottlePercent int32
	// RowCountOff is added to the row count that responses tell.
	RowCountOff int64
}

// Server is the endpoint.
type Server struct {
	storagepb.UnimplementedBigQueryReadServer
	Faults Faults

	addr   string
	grpc   *grpc.Server
	tables map[string]Table

	mu       sync.Mutex
	sessions map[string]*session
	requests []*storagepb.CreateReadSessionRequest
	opens    int
	active   int
	peak     int

	encoded sync.Map // of tables with EncodeOnce: response → []byte
}

// response names the bytes of one.
type response struct {
	table    string
	at, end  int64
	selected string
	packed   storagepb.ArrowSerializationOptions_CompressionCodec
}

type session struct {
	name    string // of the table
	table   Table
	rows    arrow.RecordBatch
	ranges  [][2]int64
	options *storagepb.ReadSession_TableReadOptions
}

// Start serves tables, named projects/P/datasets/D/tables/T, until the test ends.
func Start(t testing.TB, tables map[string]Table) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{addr: l.Addr().String(), grpc: grpc.NewServer(), tables: tables, sessions: map[string]*session{}}
	storagepb.RegisterBigQueryReadServer(s.grpc, s)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.grpc.Serve(l) }()
	t.Cleanup(func() { s.grpc.Stop(); <-served })
	return s
}

// Addr is the host and port.
func (s *Server) Addr() string { return s.addr }

// Requests are the sessions that were asked for.
func (s *Server) Requests() []*storagepb.CreateReadSessionRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Opens is how often ReadRows was called; Peak how many calls were served at once at most.
func (s *Server) Opens() (opens, peak int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opens, s.peak
}

// Exhausted is RESOURCE_EXHAUSTED with the time to wait.
func Exhausted(wait time.Duration) error {
	st, err := status.New(codes.ResourceExhausted, "quota exceeded").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// CreateReadSession implements the service.
func (s *Server) CreateReadSession(_ context.Context, r *storagepb.CreateReadSessionRequest) (*storagepb.ReadSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	t, ok := s.tables[r.ReadSession.Table]
	options := r.ReadSession.GetReadOptions()
	switch {
	case !ok:
		return nil, status.Errorf(codes.NotFound, "Not found: Table %s", r.ReadSession.Table)
	case t.View:
		return nil, status.Error(codes.InvalidArgument, "request failed: non-table entities cannot be read with the storage API")
	case t.NeedsFilter && options.GetRowRestriction() == "":
		return nil, status.Error(codes.InvalidArgument, "request failed: Cannot query over table without a filter over column(s) 'day' that can be used for partition elimination")
	case r.ReadSession.DataFormat != storagepb.DataFormat_ARROW:
		return nil, status.Error(codes.InvalidArgument, "only Arrow here")
	}
	rows := project(t.Rows, options.GetSelectedFields())
	se := &session{name: r.ReadSession.Table, table: t, rows: rows, options: options}
	out := &storagepb.ReadSession{Name: fmt.Sprintf("projects/p/locations/here/sessions/s%d", len(s.sessions)), Table: r.ReadSession.Table,
		EstimatedRowCount: t.Rows.NumRows(), EstimatedTotalBytesScanned: t.Rows.NumRows() * 100,
		Schema: &storagepb.ReadSession_ArrowSchema{ArrowSchema: &storagepb.ArrowSchema{SerializedSchema: encode(rows.Schema(), nil, options)}}}
	n := max(int64(r.MaxStreamCount), 1)
	for i := range n {
		from, to := rows.NumRows()*i/n, rows.NumRows()*(i+1)/n
		if from == to {
			continue
		}
		out.Streams = append(out.Streams, &storagepb.ReadStream{Name: fmt.Sprintf("%s/streams/%d", out.Name, len(se.ranges))})
		se.ranges = append(se.ranges, [2]int64{from, to})
	}
	s.sessions[out.Name] = se
	return out, nil
}

// project keeps the selected fields, in the table's order, as the real one does.
func project(rb arrow.RecordBatch, selected []string) arrow.RecordBatch {
	if len(selected) == 0 {
		return rb
	}
	var fields []arrow.Field
	var cols []arrow.Array
	for i, f := range rb.Schema().Fields() {
		for _, name := range selected {
			if name == f.Name {
				fields, cols = append(fields, f), append(cols, rb.Column(i))
			}
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, rb.NumRows())
}

// encode gives the schema's IPC message, or with rb the batch's.
func encode(schema *arrow.Schema, rb arrow.RecordBatch, o *storagepb.ReadSession_TableReadOptions) []byte {
	opts := []ipc.Option{ipc.WithSchema(schema)}
	if o.GetArrowSerializationOptions().GetBufferCompression() == storagepb.ArrowSerializationOptions_LZ4_FRAME {
		opts = append(opts, ipc.WithLZ4())
	}
	var head, all bytes.Buffer
	w := ipc.NewWriter(&head, opts...)
	if err := w.Close(); err != nil {
		panic(err)
	}
	const end = 8 // the end-of-stream mark
	if rb == nil {
		return head.Bytes()[:head.Len()-end]
	}
	w = ipc.NewWriter(&all, opts...)
	if err := w.Write(rb); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return all.Bytes()[head.Len()-end : all.Len()-end]
}

// ReadRows implements the service.
func (s *Server) ReadRows(r *storagepb.ReadRowsRequest, out storagepb.BigQueryRead_ReadRowsServer) error {
	name, number, _ := strings.Cut(r.ReadStream, "/streams/")
	n, err := strconv.Atoi(number)
	s.mu.Lock()
	se := s.sessions[name]
	s.opens++
	s.active++
	s.peak = max(s.peak, s.active)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.active--; s.mu.Unlock() }()
	if err != nil || se == nil || n >= len(se.ranges) {
		return status.Errorf(codes.NotFound, "no stream %s", r.ReadStream)
	}
	from, to := se.ranges[n][0], se.ranges[n][1]
	if r.Offset > to-from {
		return status.Errorf(codes.OutOfRange, "offset %d is past the end of the stream", r.Offset)
	}
	if f := s.Faults.BeforeOpen; f != nil {
		if err := f(n, r.Offset); err != nil {
			return err
		}
	}
	return s.serve(se, n, from+r.Offset, to, out)
}

func (s *Server) bytes(se *session, at, end int64) []byte {
	key := response{se.name, at, end, strings.Join(se.options.GetSelectedFields(), ","), se.options.GetArrowSerializationOptions().GetBufferCompression()}
	if b, ok := s.encoded.Load(key); ok {
		return b.([]byte)
	}
	b := encode(se.rows.Schema(), se.rows.NewSlice(at, end), se.options)
	if se.table.EncodeOnce {
		s.encoded.Store(key, b)
	}
	return b
}

func (s *Server) serve(se *session, n int, at, to int64, out storagepb.BigQueryRead_ReadRowsServer) error {
	from := se.ranges[n][0]
	for at < to {
		if f := s.Faults.Delay; f != nil {
			select {
			case <-time.After(f(n, at-from)):
			case <-out.Context().Done():
				return out.Context().Err()
			}
		}
		if f := s.Faults.BeforeResponse; f != nil {
			if err := f(n, at-from); err != nil {
				return err
			}
		}
		size := se.table.BatchRows
		if size == 0 {
			size = 100
		}
		end := min(at+size, to)
		b := s.bytes(se, at, end)
		err := out.Send(&storagepb.ReadRowsResponse{RowCount: end - at + s.Faults.RowCountOff,
			Rows:          &storagepb.ReadRowsResponse_ArrowRecordBatch{ArrowRecordBatch: &storagepb.ArrowRecordBatch{SerializedRecordBatch: b}},
			ThrottleState: &storagepb.ThrottleState{ThrottlePercent: s.Faults.ThrottlePercent}})
		if err != nil {
			return err
		}
		at = end
	}
	return nil
}

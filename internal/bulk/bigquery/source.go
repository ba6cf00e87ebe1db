package bigquery

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	storage "cloud.google.com/go/bigquery/storage/apiv1"
	"cloud.google.com/go/bigquery/storage/apiv1/storagepb"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"synctl/internal/bulk"
	"synctl/internal/fault"
)

// Options say what of the table is read, and how patiently.
type Options struct {
	Filter  string        // row restriction, BigQuery's syntax; empty: all rows
	Streams int           // asked for at most; the server may give fewer; 0: 4
	Idle    time.Duration // without a response a stream is opened anew; 0: 2 minutes
	Backoff time.Duration // first wait before a broken stream is opened anew, doubled up to 64 times it; 0: 500 ms
	Log     *slog.Logger  // nil: none
}

// Table is what a bigquery:// URL names.
type Table struct {
	Project, Dataset, Name string
	Snapshot               time.Time // zero: now
	Billing                string    // project that pays; default Project
	Endpoint               string    // host:port of a local server; empty: Google's
}

// ParseURL reads bigquery://PROJECT/DATASET/TABLE[@SNAPSHOT][?billing=PROJECT][&endpoint=HOST:PORT].
func ParseURL(s string) (Table, error) {
	bad := func(format string, args ...any) (Table, error) {
		return Table{}, fault.New(fault.Usage, "Write bigquery://PROJECT/DATASET/TABLE, with @2026-11-30T00:00:00Z behind it for the table as it was then.",
			"data set %q: %s", s, fmt.Sprintf(format, args...))
	}
	rest, ok := strings.CutPrefix(s, "bigquery://")
	if !ok {
		return bad("no bigquery:// URL")
	}
	path, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return bad("%v", err)
	}
	for k := range values {
		if k != "endpoint" && k != "billing" {
			return bad("unknown parameter %s", k)
		}
	}
	path, snapshot, hasSnapshot := strings.Cut(path, "@")
	parts := strings.Split(path, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return bad("it needs a project, a data set and a table")
	}
	t := Table{Project: parts[0], Dataset: parts[1], Name: parts[2], Billing: values.Get("billing"), Endpoint: strings.TrimPrefix(values.Get("endpoint"), "http://")}
	if t.Billing == "" {
		t.Billing = t.Project
	}
	if hasSnapshot {
		if ms, err := strconv.ParseInt(snapshot, 10, 64); err == nil {
			t.Snapshot = time.UnixMilli(ms)
		} else if t.Snapshot, err = time.Parse(time.RFC3339, snapshot); err != nil {
			return bad("snapshot %q is neither RFC 3339 nor milliseconds", snapshot)
		}
	}
	return t, nil
}

func (t Table) path() string {
	return fmt.Sprintf("projects/%s/datasets/%s/tables/%s", t.Project, t.Dataset, t.Name)
}

// Source is a table and the session through which it is read.
type Source struct {
	name    string
	table   Table
	o       Options
	client  *storage.BigQueryReadClient
	session *storagepb.ReadSession
	schema  *arrow.Schema
	size    bulk.Size

	streams chan string
	gate    *gate

	retries, throttled atomic.Int64
	throttle           atomic.Int32 // percent, as the server last told it
}

// Open makes a read session, from which the schema is known.
func Open(ctx context.Context, source string, o Options) (*Source, error) {
	t, err := ParseURL(source)
	if err != nil {
		return nil, err
	}
	if o.Streams <= 0 {
		o.Streams = 4
	}
	if o.Idle <= 0 {
		o.Idle = 2 * time.Minute
	}
	if o.Backoff <= 0 {
		o.Backoff = 500 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{name: source, table: t, o: o, gate: newGate(o.Streams)}
	var opts []option.ClientOption
	if t.Endpoint != "" {
		opts = append(opts, option.WithEndpoint(t.Endpoint), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
	if s.client, err = storage.NewBigQueryReadClient(ctx, opts...); err != nil {
		return nil, fault.New(fault.Unreachable, "Application default credentials are used: run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS.",
			"connect to BigQuery: %w", err)
	}
	if err := s.begin(ctx, nil); err != nil {
		s.client.Close()
		return nil, err
	}
	s.size = bulk.Size{Rows: s.session.EstimatedRowCount, Bytes: s.session.EstimatedTotalBytesScanned, Parts: len(s.session.Streams), PartsName: "streams",
		Note: fmt.Sprintf("about %d bytes are scanned, and billed as Storage Read", s.session.EstimatedTotalBytesScanned)}
	return s, nil
}

// begin makes a session for the given columns; nil: all.
func (s *Source) begin(ctx context.Context, selected []string) error {
	req := &storagepb.CreateReadSessionRequest{
		Parent: "projects/" + s.table.Billing,
		ReadSession: &storagepb.ReadSession{
			Table:      s.table.path(),
			DataFormat: storagepb.DataFormat_ARROW,
			ReadOptions: &storagepb.ReadSession_TableReadOptions{
				SelectedFields: selected,
				RowRestriction: s.o.Filter,
				OutputFormatSerializationOptions: &storagepb.ReadSession_TableReadOptions_ArrowSerializationOptions{
					ArrowSerializationOptions: &storagepb.ArrowSerializationOptions{BufferCompression: storagepb.ArrowSerializationOptions_LZ4_FRAME}},
			},
		},
		MaxStreamCount: int32(s.o.Streams),
	}
	if !s.table.Snapshot.IsZero() {
		req.ReadSession.TableModifiers = &storagepb.ReadSession_TableModifiers{SnapshotTime: timestamppb.New(s.table.Snapshot)}
	}
	session, err := s.client.CreateReadSession(ctx, req)
	if err != nil {
		return s.sessionFault(err)
	}
	schema, err := ipc.NewReader(bytes.NewReader(session.GetArrowSchema().GetSerializedSchema()))
	if err != nil {
		return fault.New(fault.Failed, "", "read schema of %s: %w", s.name, err)
	}
	defer schema.Release()
	s.session, s.schema = session, schema.Schema()
	return nil
}

// sessionFault says what to do about a session that is refused.
func (s *Source) sessionFault(err error) error {
	msg := status.Convert(err).Message()
	class, hint := fault.Unreachable, "Check the network and BigQuery's state, and run again."
	switch {
	case strings.Contains(msg, "non-table") || strings.Contains(strings.ToLower(msg), "view"):
		class, hint = fault.Check, "Views and materialized views cannot be read through the Storage Read API: write a table first (CREATE TABLE … AS SELECT …) and load that."
	case strings.Contains(msg, "without a filter"):
		class, hint = fault.Check, "The table requires a filter on its partitions: give one, such as --filter \"day = '2026-11-30'\"."
	default:
		switch status.Code(err) {
		case codes.NotFound:
			class, hint = fault.Check, "Check project, data set, table and snapshot time."
		case codes.InvalidArgument:
			class, hint = fault.Check, "Check --filter, which is a predicate and no SQL statement, and the snapshot time."
		case codes.PermissionDenied, codes.Unauthenticated:
			hint = "Grant roles/bigquery.dataViewer on the table and roles/bigquery.readSessionUser on the project that pays (?billing=PROJECT)."
		}
	}
	return fault.New(class, hint, "open %s: %w", s.name, err)
}

// Name, Fields, Size and Close make Source a bulk.Source.
func (s *Source) Name() string    { return s.name }
func (s *Source) Size() bulk.Size { return s.size }
func (s *Source) Close() error    { return s.client.Close() }
func (s *Source) Fields() []bulk.Field {
	var fields []bulk.Field
	for _, f := range s.schema.Fields() {
		b := bulk.Field{Name: f.Name, Arrow: f.Type}
		if !f.Nullable {
			b.Nulls = bulk.NoNulls
		}
		fields = append(fields, b)
	}
	return fields
}

// Trouble makes Source one whose waiting a load can show.
func (s *Source) Trouble() bulk.Trouble {
	return bulk.Trouble{Retries: s.retries.Load(), Throttled: s.throttled.Load(), ThrottlePercent: int(s.throttle.Load())}
}

// Readers gives readers that take stream after stream.
func (s *Source) Readers(ctx context.Context, columns []int, n int) ([]bulk.Reader, error) {
	var names []string
	for _, c := range columns {
		names = append(names, s.schema.Field(c).Name)
	}
	if len(names) < s.schema.NumFields() {
		if err := s.begin(ctx, names); err != nil {
			return nil, err
		}
	}
	s.streams = make(chan string, len(s.session.Streams))
	for _, st := range s.session.Streams {
		s.streams <- st.Name
	}
	close(s.streams)
	var readers []bulk.Reader
	for range max(min(n, len(s.session.Streams)), 1) {
		r := &reader{source: s, schema: s.session.GetArrowSchema().GetSerializedSchema()}
		for _, name := range names { // the session's order is the table's, not that of the request
			at := s.schema.FieldIndices(name)
			if len(at) != 1 {
				return nil, fault.New(fault.Failed, "The table may have been altered: run again.", "read %s: column %q is not in the session", s.name, name)
			}
			r.at = append(r.at, at[0])
		}
		readers = append(readers, r)
	}
	return readers, nil
}

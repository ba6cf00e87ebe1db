package bigquery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"synctl/internal/bulk"
	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/testkit"
	"synctl/internal/testkit/bigqueryfake"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// column is one BigQuery column as the API sends it: values as Arrow's JSON, and what to_json has to say of them.
type column struct {
	name   string
	arrow  arrow.DataType
	target string
	in     string
	want   string
}

var kinds = []column{
	{"int64", arrow.PrimitiveTypes.Int64, "bigint", `[-9223372036854775808,9223372036854775807]`, `[-9223372036854775808, 9223372036854775807]`},
	{"bool", arrow.FixedWidthTypes.Boolean, "boolean", `[true,null]`, `[true, null]`},
	{"float64", arrow.PrimitiveTypes.Float64, "float8", `[0.1,-1e300]`, `[0.1, -1e+300]`},
	{"numeric", &arrow.Decimal128Type{Precision: 38, Scale: 9}, "numeric", `["-99999999999999999999999999999.999999999","1.5"]`, `[-99999999999999999999999999999.999999999, 1.500000000]`},
	{"bignumeric", &arrow.Decimal256Type{Precision: 76, Scale: 38}, "numeric", `["-12345678901234567890123456789012345678.12345678901234567890123456789012345678","0"]`,
		`[-12345678901234567890123456789012345678.12345678901234567890123456789012345678, 0.00000000000000000000000000000000000000]`},
	{"string", arrow.BinaryTypes.String, "text", `["","grüße"]`, `["", "grüße"]`},
	{"bytes", arrow.BinaryTypes.Binary, "bytea", `["AP8=",null]`, `["\\x00ff", null]`},
	{"date", arrow.FixedWidthTypes.Date32, "date", `["0001-01-01","9999-12-31"]`, `["0001-01-01", "9999-12-31"]`},
	{"datetime", &arrow.TimestampType{Unit: arrow.Microsecond}, "timestamp", `["0001-01-01T00:00:00","9999-12-31T23:59:59.999999"]`, `["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"]`},
	{"time", arrow.FixedWidthTypes.Time64us, "time", `["23:59:59.999999","00:00:00"]`, `["23:59:59.999999", "00:00:00"]`},
	{"timestamp", arrow.FixedWidthTypes.Timestamp_us, "timestamptz", `["2026-11-30T19:58:00.123456Z","0001-01-01T00:00:00Z"]`, `["2026-11-30T19:58:00.123456+00:00", "0001-01-01T00:00:00+00:00"]`},
	{"json", arrow.BinaryTypes.String, "jsonb", `["{\"n\":12345678901234567890.5}",null]`, `[{"n": 12345678901234567890.5}, null]`},
	{"geography", arrow.BinaryTypes.String, "text", `["POINT(1 2)",null]`, `["POINT(1 2)", null]`},
	{"interval", arrow.FixedWidthTypes.MonthDayNanoInterval, "interval", `[{"months":14,"days":-3,"nanoseconds":3723000004000},null]`, `["1 year 2 mons -3 days +01:02:03.000004", null]`},
	{"range", arrow.StructOf(arrow.Field{Name: "start", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true}, arrow.Field{Name: "end", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true}), "tstzrange",
		`[{"start":"2026-01-01T00:00:00Z","end":null},{"start":"2026-01-01T00:00:00Z","end":"2026-01-02T00:00:00Z"}]`,
		`["[\"2026-01-01 00:00:00+00\",)", "[\"2026-01-01 00:00:00+00\",\"2026-01-02 00:00:00+00\")"]`},
	{"array", arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64), "bigint[]", `[[1,2],[]]`, `[[1,2], []]`},
	{"nested", arrow.StructOf(arrow.Field{Name: "j", Type: arrow.BinaryTypes.String, Nullable: true, Metadata: arrow.MetadataFrom(map[string]string{"ARROW:extension:name": "google:sqlType:json"})},
		arrow.Field{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}, arrow.Field{Name: "b", Type: arrow.BinaryTypes.Binary, Nullable: true}), "jsonb",
		`[{"j":"{\"n\":1.10}","s":"{}","b":"AP8="},{"j":null,"s":null,"b":null}]`, `[{"b": "\\x00ff", "j": {"n": 1.10}, "s": "{}"}, {"b": null, "j": null, "s": null}]`},
	{"structs", arrow.ListOfNonNullable(arrow.StructOf(arrow.Field{Name: "n", Type: &arrow.Decimal128Type{Precision: 38, Scale: 9}, Nullable: true})), "jsonb", `[[{"n":"0.000000001"}],[]]`, `[[{"n": 0.000000001}], []]`},
}

func batch(t *testing.T, cols []column) arrow.RecordBatch {
	t.Helper()
	var fields []arrow.Field
	var arrs []arrow.Array
	for _, c := range cols {
		a, _, err := array.FromJSON(memory.DefaultAllocator, c.arrow, strings.NewReader(c.in))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		fields, arrs = append(fields, arrow.Field{Name: c.name, Type: c.arrow, Nullable: true}), append(arrs, a)
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrs, int64(arrs[0].Len()))
}

func load(t *testing.T, s *bigqueryfake.Server, table string, b Options, o bulk.Options) (*bulk.Summary, error) {
	t.Helper()
	src, err := Open(context.Background(), "bigquery://p/d/"+table+"?endpoint="+s.Addr(), b)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	return bulk.New(src, o).Run(context.Background())
}

func TestEveryTypeArrivesExact(t *testing.T) {
	s := bigqueryfake.Start(t, map[string]bigqueryfake.Table{"projects/p/datasets/d/tables/kinds": {Rows: batch(t, kinds), BatchRows: 1}})
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	ddl := []string{"nr int GENERATED ALWAYS AS IDENTITY"}
	for _, c := range kinds {
		ddl = append(ddl, pg.Ident(c.name)+" "+c.target)
	}
	testkit.Exec(t, conn, "CREATE TABLE kinds ("+strings.Join(ddl, ", ")+")")
	if _, err := load(t, s, "kinds", Options{Streams: 1}, bulk.Options{To: pg.DSN(dsn), Table: "kinds", Readers: 1, Writers: 1}); err != nil {
		t.Fatal(err)
	}
	for _, c := range kinds {
		var got string
		if err := conn.QueryRow(context.Background(), fmt.Sprintf(`SELECT replace(json_agg(%s ORDER BY nr)::text, E', \n ', ', ') FROM kinds_staging`, pg.Ident(c.name))).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

const many = 20_000

func numbers(t *testing.T) arrow.RecordBatch {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "note", Type: arrow.BinaryTypes.String}, {Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "day", Type: arrow.FixedWidthTypes.Date32}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i := range many {
		b.Field(0).(*array.StringBuilder).Append(fmt.Sprint("note ", i))
		b.Field(1).(*array.Int64Builder).Append(int64(i))
		b.Field(2).(*array.Date32Builder).Append(arrow.Date32(i % 10))
	}
	return b.NewRecordBatch()
}

// However the server misbehaves, the table is complete and no row is there twice.
func TestTroubleLosesAndDoublesNothing(t *testing.T) {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(1, 2))
	chance := func(p float64) bool { mu.Lock(); defer mu.Unlock(); return rnd.Float64() < p }
	once := map[int]bool{}
	first := func(stream int) bool {
		mu.Lock()
		defer mu.Unlock()
		was := once[stream]
		once[stream] = true
		return !was
	}
	breaks := []codes.Code{codes.Unavailable, codes.Internal, codes.Aborted, codes.DeadlineExceeded}
	for _, c := range []struct {
		name    string
		faults  bigqueryfake.Faults
		retries bool
	}{
		{"well", bigqueryfake.Faults{}, false},
		{"cut", bigqueryfake.Faults{BeforeResponse: func(int, int64) error {
			if chance(0.05) {
				return status.Error(breaks[rnd.IntN(len(breaks))], "stream terminated by RST_STREAM")
			}
			return nil
		}}, true},
		{"refused", bigqueryfake.Faults{BeforeOpen: func(int, int64) error {
			if chance(0.5) {
				return status.Error(codes.Unavailable, "try again")
			}
			return nil
		}}, true},
		{"exhausted", bigqueryfake.Faults{BeforeOpen: func(stream int, _ int64) error {
			if first(stream) {
				return bigqueryfake.Exhausted(30 * time.Millisecond)
			}
			return nil
		}}, true},
		{"dawdling", bigqueryfake.Faults{Delay: func(stream int, _ int64) time.Duration {
			if first(stream + 100) {
				return time.Minute
			}
			return 0
		}}, true},
		{"throttled", bigqueryfake.Faults{ThrottlePercent: 40}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := bigqueryfake.Start(t, map[string]bigqueryfake.Table{"projects/p/datasets/d/tables/numbers": {Rows: numbers(t)}})
			s.Faults = c.faults
			dsn := testkit.Shared(t).Database(t)
			conn := testkit.Connect(t, dsn)
			testkit.Exec(t, conn, "CREATE TABLE numbers (id bigint NOT NULL, note text, day date)")
			idle := time.Minute
			if c.name == "dawdling" {
				idle = 300 * time.Millisecond
			}
			sum, err := load(t, s, "numbers", Options{Streams: 3, Idle: idle, Backoff: time.Millisecond}, bulk.Options{To: pg.DSN(dsn), Table: "numbers", Readers: 3})
			if err != nil {
				t.Fatal(err)
			}
			var rows, distinct, total int64
			if err := conn.QueryRow(context.Background(), "SELECT count(*), count(DISTINCT id), sum(id) FROM numbers_staging WHERE note = 'note ' || id").Scan(&rows, &distinct, &total); err != nil {
				t.Fatal(err)
			}
			if rows != many || distinct != many || total != many*(many-1)/2 || sum.Rows != many {
				t.Errorf("%d rows, %d of them different, sum %d; the summary says %d", rows, distinct, total, sum.Rows)
			}
			if opens, _ := s.Opens(); (sum.Trouble.Retries > 0) != c.retries || (opens > 3) != c.retries {
				t.Errorf("%d retries, %d calls; want more than the three there have to be: %v", sum.Trouble.Retries, opens, c.retries)
			}
			if sum.Trouble.ThrottlePercent != int(c.faults.ThrottlePercent) || (sum.Trouble.Throttled > 0) != (c.name == "exhausted") {
				t.Errorf("throttling told as %+v", *sum.Trouble)
			}
		})
	}
}

func TestWhatIsReadIsAskedFor(t *testing.T) {
	s := bigqueryfake.Start(t, map[string]bigqueryfake.Table{"projects/p/datasets/d/tables/numbers": {Rows: numbers(t), NeedsFilter: true}})
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, "CREATE TABLE n (id bigint, remark text)")
	_, err := load(t, s, "numbers@2026-11-30T00:00:00Z", Options{Filter: "day = '2026-11-30'", Streams: 2},
		bulk.Options{To: pg.DSN(dsn), Table: "n", Columns: []string{"id", "note"}, Rename: map[string]string{"note": "remark"}})
	if err != nil {
		t.Fatal(err)
	}
	var bad int
	if err := conn.QueryRow(context.Background(), "SELECT count(*) FROM n_staging WHERE remark <> 'note ' || id").Scan(&bad); err != nil || bad != 0 {
		t.Errorf("%d rows with another's note, %v", bad, err)
	}
	last := s.Requests()[len(s.Requests())-1]
	o := last.ReadSession.ReadOptions
	if got := strings.Join(o.SelectedFields, ","); got != "note,id" {
		t.Errorf("selected %s", got)
	}
	if o.RowRestriction != "day = '2026-11-30'" || last.ReadSession.TableModifiers.SnapshotTime.AsTime().Format(time.RFC3339) != "2026-11-30T00:00:00Z" ||
		last.Parent != "projects/p" || last.MaxStreamCount != 2 || o.GetArrowSerializationOptions().BufferCompression != 1 {
		t.Errorf("request %v", last)
	}
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	tables := map[string]bigqueryfake.Table{"projects/p/datasets/d/tables/view": {View: true, Rows: numbers(t)},
		"projects/p/datasets/d/tables/parts": {NeedsFilter: true, Rows: numbers(t)}, "projects/p/datasets/d/tables/numbers": {Rows: numbers(t)}}
	s := bigqueryfake.Start(t, tables)
	for table, want := range map[string]string{"view": "write a table first", "parts": "--filter", "nothing": "Check project"} {
		_, err := Open(context.Background(), "bigquery://p/d/"+table+"?endpoint="+s.Addr(), Options{})
		if fault.ClassOf(err) != fault.Check || !strings.Contains(fault.HintOf(err), want) {
			t.Errorf("%s: %v (%s), want a failed check with %q", table, err, fault.HintOf(err), want)
		}
	}
	dsn := testkit.Shared(t).Database(t)
	testkit.Exec(t, testkit.Connect(t, dsn), "CREATE TABLE numbers (id bigint NOT NULL, note text, day date)")
	o := bulk.Options{To: pg.DSN(dsn), Table: "numbers"}
	// A server of its own for each kind of fault: the load may end before its server has noticed.
	s = bigqueryfake.Start(t, tables)
	s.Faults = bigqueryfake.Faults{RowCountOff: 1}
	if _, err := load(t, s, "numbers", Options{Backoff: time.Millisecond}, o); err == nil || !strings.Contains(err.Error(), "it says 101 rows and holds 100") {
		t.Errorf("wrong row count: %v", err)
	}
	s = bigqueryfake.Start(t, tables)
	s.Faults = bigqueryfake.Faults{BeforeResponse: func(_ int, at int64) error {
		if at == 500 {
			return status.Error(codes.OutOfRange, "offset is past the end")
		}
		return nil
	}}
	if _, err := load(t, s, "numbers", Options{Backoff: time.Millisecond}, o); err == nil || !strings.Contains(err.Error(), "at row 501, try 1") {
		t.Errorf("wrong offset: %v", err)
	}
	s = bigqueryfake.Start(t, tables)
	s.Faults = bigqueryfake.Faults{BeforeOpen: func(int, int64) error { return status.Error(codes.Unavailable, "gone") }}
	if _, err := load(t, s, "numbers", Options{Backoff: time.Microsecond}, o); fault.ClassOf(err) != fault.Unreachable || !strings.Contains(err.Error(), "try 11") {
		t.Errorf("gone for good: %v", err)
	}
	for _, u := range []string{"bigquery://p/d", "bigquery://p/d/t@yesterday", "bigquery://p/d/t?speed=1"} {
		if _, err := ParseURL(u); fault.ClassOf(err) != fault.Usage {
			t.Errorf("%s: %v, want a fault of usage", u, err)
		}
	}
}

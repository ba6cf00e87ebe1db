package parquet

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"synctl/internal/fault"
)

type filter struct{}

func parseFilter(s string) (*filter, error) {
	if s == "" {
		return nil, nil
	}
	return nil, fault.New(fault.Usage, "Leave --filter out.", "filter %q", s)
}
func (f *filter) bind(*arrow.Schema) error                                          { return nil }
func (f *filter) excludes(*pqarrow.SchemaManifest, *metadata.RowGroupMetaData) bool { return false }
func (f *filter) columns() []string                                                 { return nil }
func (f *filter) place([]string, []int)                                             {}
func (f *filter) keep(arrow.RecordBatch) ([]bool, error)                            { return nil, nil }
func verifyChecksums(string, *metadata.RowGroupMetaData, []int) error               { return nil }

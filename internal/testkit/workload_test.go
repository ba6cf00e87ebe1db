package testkit

import (
	"context"
	"testing"
)

func TestWorkloadReachesEveryTable(t *testing.T) {
	dsn := Shared(t).Database(t)
	conn := Connect(t, dsn)
	Exec(t, conn, WorkloadTables)
	w := &Workload{DSN: dsn, Seed: 1, Truncates: true, Emails: true, Keys: 50}
	w.Run(context.Background(), t, 400)
	if n := w.Transactions.Load(); n < 400 {
		t.Fatalf("%d transactions committed, want 400", n)
	}
	for _, table := range []string{`shop.orders`, `shop.lines`, `shop.accounts`, `shop."Odd ""names"""`, `shop.journal`, `shop.full_rows`} {
		if len(tableRows(t, conn, table)) == 0 {
			t.Errorf("%s stayed empty", table)
		}
	}
	SameTables(t, dsn, dsn, "shop")
}

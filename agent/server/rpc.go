// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"sluice.dev/sluice/agent/audit"
)

// audit adds the caller to an entry and writes it.
func (s *server) audit(ctx context.Context, e audit.Entry) {
	from := source(ctx, "", "")
	e.Owner, e.Who, e.From = from.Owner, from.Who, from.From
	s.config.Audit.Write(e)
}

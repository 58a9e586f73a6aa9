// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"syscall"
)

// refuseCoreDumps: a core dump would have all keys and passwords in it. The limit is for dumps to files; the filter is for those to programs, which get
// no memory then. PR_SET_DUMPABLE would do both, but an agent that does not run as root could not read its own /proc/self/fd any more,
// which the metrics do. Child processes inherit limit and filter.
func refuseCoreDumps() error {
	return errors.Join(syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}), os.WriteFile("/proc/self/coredump_filter", []byte("0"), 0))
}

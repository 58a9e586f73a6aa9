// SPDX-License-Identifier: Apache-2.0

// The remaining time of an unconfirmed revision after a restart of the agent. The time of day may be set meanwhile,
// to either side; the time since boot is monotonic.
package intent

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootClock returns which start of the machine this is ("": not known), and the time since then.
func bootClock() (boot string, since time.Duration) {
	var now unix.Timespec
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return "", 0
	}
	return strings.TrimSpace(string(id)), time.Duration(now.Nano())
}

// waitFor makes a revision wait so long from now on.
func (d *Desired) waitFor(open *Open, within time.Duration) {
	open.Within = within
	open.Boot, open.Begun = d.config.Boot()
}

// resume restores the remaining time of an open revision, and reports whether the store needs the new one. After a
// reboot the time that the machine was off is unknown: the whole time starts again, so that the revision is not
// undone early.
func (d *Desired) resume(open *Open) (stored bool) {
	if open.ConfirmBy.IsZero() || open.InPart || open.Within == 0 {
		// A store of an older release has the time of day alone.
		return true
	}
	boot, since := d.config.Boot()
	remains := open.Within - (since - open.Begun)
	stored = boot != "" && boot == open.Boot && since >= open.Begun
	if !stored {
		remains = open.Within
		d.waitFor(open, open.Within)
	}
	open.ConfirmBy = time.Now().Add(max(0, remains))
	return stored
}

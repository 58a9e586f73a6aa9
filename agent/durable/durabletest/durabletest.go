// SPDX-License-Identifier: Apache-2.0

// Package durabletest has a disk that becomes full, for tests of records.
package durabletest

import (
	"os"
	"syscall"
	"testing"
)

// SmallDisk returns a folder on a disk of 64 kB, and a function that gives the disk 4 MB. It skips the test if it may not mount a disk.
func SmallDisk(t *testing.T) (folder string, grow func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	folder = t.TempDir()
	mount := func(flags uintptr, size string) {
		t.Helper()
		if err := syscall.Mount("none", folder, "tmpfs", flags, size); err != nil {
			t.Fatal(err)
		}
	}
	mount(0, "size=64k")
	t.Cleanup(func() { _ = syscall.Unmount(folder, syscall.MNT_DETACH) })
	return folder, func() { t.Helper(); mount(syscall.MS_REMOUNT, "size=4m") }
}

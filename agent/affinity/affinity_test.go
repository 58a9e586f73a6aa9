// SPDX-License-Identifier: Apache-2.0

package affinity

import (
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAllThreadsAndChildrenLeaveTheProcessorsOfWorkers(t *testing.T) {
	a, err := New()
	if err != nil {
		t.Fatal(err)
	}
	all := listOf(&a.usable)
	if len(all) < 2 {
		t.Skip("there is one processor only")
	}
	defer func() {
		if left, err := a.Avoid("a", nil); err != nil || !slices.Equal(left, all) {
			t.Errorf("with no workers left: %v, %v", left, err)
		}
	}()
	left, err := a.Avoid("a", []uint32{uint32(all[0])})
	if err != nil || !slices.Equal(left, all[1:]) {
		t.Fatalf("left are %v of %v: %v", left, all, err)
	}
	// New threads, too.
	for range 8 {
		done := make(chan bool)
		go func() {
			runtime.LockOSThread() // The thread ends with the goroutine.
			var has unix.CPUSet
			done <- unix.SchedGetaffinity(0, &has) == nil && slices.Equal(listOf(&has), all[1:])
		}()
		if !<-done {
			t.Error("a thread may use other processors")
		}
	}
	status, err := exec.Command("grep", "Cpus_allowed_list", "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 2 && !strings.HasSuffix(strings.TrimSpace(string(status)), "\t"+string(rune('0'+all[1]))) {
		t.Errorf("a child has %s", status)
	}
}

func TestWorkersThatHaveAllProcessorsLeaveTheAgentWhereItIs(t *testing.T) {
	a, err := New()
	if err != nil {
		t.Fatal(err)
	}
	var every []uint32
	for _, core := range listOf(&a.usable) {
		every = append(every, uint32(core))
	}
	left, err := a.Avoid("a", every)
	if err == nil || len(left) != len(every) {
		t.Errorf("left are %v, error %v", left, err)
	}
	// A processor that is none of ours is no matter.
	if left, err = a.Avoid("a", []uint32{1023, 70000}); err != nil || len(left) != len(every) {
		t.Errorf("left are %v, error %v", left, err)
	}
}

func TestChildrenThatRunAlreadyLeaveTheProcessorsOfWorkers(t *testing.T) {
	a, err := New()
	if err != nil {
		t.Fatal(err)
	}
	all := listOf(&a.usable)
	if len(all) < 2 {
		t.Skip("there is one processor only")
	}
	// The child has a child, and reports the process id of it.
	child := exec.Command("sh", "-c", "sleep 600 & echo $!; wait")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = child.Wait()
	}()
	var grandchild int
	if _, err := fmt.Fscan(out, &grandchild); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = unix.Kill(grandchild, unix.SIGTERM)
		if _, err := a.Avoid("a", nil); err != nil {
			t.Error(err)
		}
	}()
	if _, err := a.Avoid("a", []uint32{uint32(all[0])}); err != nil {
		t.Fatal(err)
	}
	for who, id := range map[string]int{"a child": child.Process.Pid, "its child": grandchild} {
		var has unix.CPUSet
		if err := unix.SchedGetaffinity(id, &has); err != nil || !slices.Equal(listOf(&has), all[1:]) {
			t.Errorf("%s may use %v: %v", who, listOf(&has), err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sluice.dev/sluice/agent/command"
)

// A table is written with its columns aligned: numbers, whose headings begin with ">", to the right.
type table struct {
	heading []string
	rows    [][]string
	// Put in front of each line.
	indent string
	// Between two columns; 0 means 3.
	gap int
	// Not wider than this: the widest column of text is cut. 0: as wide as it is.
	columns int
	// At least these; known after write. Rows added later line up with those before.
	widths []int
}

// add adds a row; a cell is one line.
func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = line(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// write writes the heading, the first time, and the rows, and forgets them.
func (t *table) write(w io.Writer) error {
	first := t.widths == nil
	if first {
		t.widths = make([]int, len(t.heading))
		for i, cell := range t.heading {
			t.widths[i] = utf8.RuneCountInString(strings.TrimPrefix(cell, ">"))
		}
	}
	for _, row := range t.rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	t.narrow()
	between := t.between()
	var b strings.Builder
	put := func(row []string) {
		var l strings.Builder
		l.WriteString(t.indent)
		for i, cell := range row {
			if letters := []rune(cell); len(letters) > t.widths[i] {
				cell = string(letters[:t.widths[i]-1]) + "…"
			}
			gap := strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell))
			if strings.HasPrefix(t.heading[i], ">") {
				l.WriteString(gap + cell + between)
			} else {
				l.WriteString(cell + gap + between)
			}
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	if first {
		names := make([]string, len(t.heading))
		for i, cell := range t.heading {
			names[i] = strings.TrimPrefix(cell, ">")
		}
		put(names)
	}
	for _, row := range t.rows {
		put(row)
	}
	t.rows = nil
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *table) between() string {
	if t.gap > 0 {
		return strings.Repeat(" ", t.gap)
	}
	return "   "
}

// narrow shortens the widest column of text, but leaves room for its heading.
func (t *table) narrow() {
	if t.columns == 0 {
		return
	}
	widest, all := -1, len(t.indent)-len(t.between())
	for i, width := range t.widths {
		all += width + len(t.between())
		if !strings.HasPrefix(t.heading[i], ">") && (widest < 0 || width > t.widths[widest]) {
			widest = i
		}
	}
	if widest >= 0 && all > t.columns {
		t.widths[widest] = max(t.widths[widest]-(all-t.columns), utf8.RuneCountInString(t.heading[widest]))
	}
}

// human writes a number with three digits that count: "0", "7", "1.23k", "45.6M". A negative or absurd one is "-".
func human(n float64) string {
	if math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
		return "-"
	}
	const units = " kMGTPE"
	unit := 0
	for n >= 999.5 && unit < len(units)-1 {
		n /= 1000
		unit++
	}
	digits := 0
	switch {
	case n >= 99.95 || unit == 0 && n == math.Trunc(n):
	case n >= 9.995:
		digits = 1
	default:
		digits = 2
	}
	return strings.TrimSpace(fmt.Sprintf("%.*f%c", digits, n, units[unit]))
}

// exact is every digit, for comparisons.
func exact(n uint64) string { return strconv.FormatUint(n, 10) }

func count(n uint64) string { return human(float64(n)) }

// withUnit: "1.5 MB", "3 B".
func withUnit(n float64, unit string) string {
	text := human(n)
	if last := text[len(text)-1]; last >= 'A' {
		return text[:len(text)-1] + " " + string(last) + unit
	}
	return text + " " + unit
}

func bytesText(n uint64) string { return withUnit(float64(n), "B") }

func bitRate(bitsPerSecond float64) string { return withUnit(bitsPerSecond, "bit/s") }

// age: "45s", "3m", "7h", "12d".
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// orDash keeps columns readable where there is nothing.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// plural: "1 object", "3 objects".
func plural(n int, one, many string) string {
	return command.Plural(n, one, many)
}

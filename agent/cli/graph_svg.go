// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"

	"sluice.dev/sluice/agent/api"
)

// Of the picture, in pixels.
const (
	boxHeight = 40
	boxGap    = 18
	layerGap  = 70
	margin    = 16
	// Of a letter, about; and of a box without any.
	letter   = 7
	boxEmpty = 24
	// No layer is wider: it goes on in another row.
	widest = 1800
)

func (n *node) width() int {
	return boxEmpty + letter*max(utf8.RuneCountInString(n.label()), utf8.RuneCountInString(n.state))
}

// rows breaks layers that would be too wide.
func rows(layers [][]*node) [][]*node {
	var all [][]*node
	for _, layer := range layers {
		var row []*node
		width := 0
		for _, n := range layer {
			if width += n.width() + boxGap; width > widest && len(row) > 0 {
				all = append(all, row)
				row, width = nil, n.width()+boxGap
			}
			row = append(row, n)
		}
		all = append(all, row)
	}
	return all
}

// svg is a picture: objects without users on top, lines down to the objects that they need.
func (g *graph) svg() string {
	all := rows(g.layers())
	total := 2 * margin
	widths := make([]int, len(all))
	for i, row := range all {
		for _, n := range row {
			widths[i] += n.width() + boxGap
		}
		widths[i] -= boxGap
		total = max(total, widths[i]+2*margin)
	}
	y := margin
	for i, row := range all {
		x := (total - widths[i]) / 2
		for _, n := range row {
			n.x, n.y = x, y
			x += n.width() + boxGap
		}
		y += boxHeight + layerGap
	}
	var b strings.Builder
	height := max(y-layerGap, margin) + margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		total, height, total, height)
	b.WriteString(`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	for _, n := range g.sorted() {
		for _, needed := range n.needs {
			x1, y1 := n.x+n.width()/2, n.y+boxHeight
			x2, y2 := needed.x+needed.width()/2, needed.y
			bend := max((y2-y1)/2, layerGap/2)
			fmt.Fprintf(&b, `<path d="M%d %dC%d %d %d %d %d %d" fill="none" stroke="#90a4ae"/>`+"\n", x1, y1, x1, y1+bend, x2, y2-bend, x2, y2)
		}
	}
	for _, n := range g.sorted() {
		c := colors[n.state]
		dashed := ""
		if n.state != stateText(api.State_APPLIED) {
			dashed = ` stroke-dasharray="5 3"`
		}
		fmt.Fprintf(&b, `<g><title>%s: %s</title><rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="%s" stroke="%s" stroke-width="1.5"%s/>`,
			html.EscapeString(n.label()), html.EscapeString(strings.TrimSuffix(n.state+": "+n.message, ": ")), n.x, n.y, n.width(), boxHeight, c[1], c[0], dashed)
		middle := n.x + n.width()/2
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`, middle, n.y+17, html.EscapeString(n.label()))
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" font-size="10" fill="%s">%s</text></g>`+"\n", middle, n.y+32, c[0], html.EscapeString(n.state))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

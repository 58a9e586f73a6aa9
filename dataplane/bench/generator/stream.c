// SPDX-License-Identifier: Apache-2.0
// Frames of a stream: made, known again, counted.
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <rte_memcpy.h>

const char *
stream_open(struct stream *s, const char *file)
{
	FILE *in = fopen(file, "rb");
	struct stat found;
	bool whole = true;

	if (!in || fstat(fileno(in), &found)) {
		if (in)
			fclose(in);
		return "the file of headers cannot be read";
	}
	if (s->header == 0 || found.st_size == 0 || found.st_size % s->header != 0 ||
		found.st_size / s->header > UINT32_MAX / 2) {
		fclose(in);
		return "the file is not a whole number of headers";
	}
	if (s->length > FRAME_LENGTH_MAX || s->header + sizeof(struct mark) > s->length) {
		fclose(in);
		return "the frame has no room for its header and 16 bytes more, or is longer than 2000 bytes";
	}
	s->flows = (uint32_t)(found.st_size / s->header);
	s->stride = (uint16_t)RTE_ALIGN_CEIL(s->header, 16);
	s->headers = calloc(s->flows, s->stride);
	s->next = calloc(s->flows, sizeof(s->next[0]));
	for (uint32_t i = 0; s->headers && s->next && whole && i < s->flows; i++)
		whole = fread(s->headers + (size_t)i * s->stride, 1, s->header, in) == s->header;
	fclose(in);
	if (s->headers && s->next && whole)
		return NULL;
	stream_close(s);
	return whole ? "there is no memory for so many flows" : "the file of headers cannot be read";
}

void
stream_close(struct stream *s)
{
	free(s->headers);
	free(s->next);
	*s = (struct stream){0};
}

void
stream_clear(struct stream *s)
{
	memset(s->next, 0, s->flows * sizeof(s->next[0]));
	s->intended = s->offered = s->refused = 0;
	s->flow = 0;
	s->received = s->received_bytes = s->reordered = s->duplicates = 0;
	memset(&s->latency, 0, sizeof(s->latency));
}

void
stream_fill(struct stream *s, uint8_t number, uint16_t trial, uint64_t now, struct rte_mbuf **m, unsigned count)
{
	struct mark mark = {.trial = trial, .stream = number, .magic = MARK_MAGIC, .sent = now};

	for (unsigned i = 0; i < count; i++) {
		uint8_t *data = rte_pktmbuf_mtod(m[i], uint8_t *);

		rte_memcpy(data, s->headers + (size_t)s->flow * s->stride, s->header);
		mark.sequence = (uint32_t)(s->offered + i);
		memcpy(data + s->length - sizeof(mark), &mark, sizeof(mark));
		m[i]->data_len = s->length;
		m[i]->pkt_len = s->length;
		if (++s->flow == s->flows)
			s->flow = 0;
	}
}

const struct mark *
stream_mark(const struct rte_mbuf *m, uint16_t trial)
{
	const struct mark *mark;

	if (m->data_len < sizeof(*mark))
		return NULL;
	mark = rte_pktmbuf_mtod_offset(m, const struct mark *, m->data_len - sizeof(*mark));
	return mark->magic == MARK_MAGIC && mark->trial == trial ? mark : NULL;
}

void
stream_count(struct stream *s, const struct rte_mbuf *m, const struct mark *mark, uint64_t now)
{
	uint32_t *next = &s->next[mark->sequence % s->flows];

	// RFC 4737 section 3.3, within the flow: a frame behind a later one is reordered.
	if (likely(mark->sequence >= *next))
		*next = mark->sequence + 1;
	else if (mark->sequence == *next - 1)
		s->duplicates++;
	else
		s->reordered++;
	s->received++;
	s->received_bytes += m->pkt_len;
	histogram_record(&s->latency, now - mark->sent);
}

// SPDX-License-Identifier: Apache-2.0
// Every truncation and every flipped bit of each valid packet, through the real nodes: mutations CORPUS-DIR. A file is an
// input of frames.c; its first frame is changed.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

static unsigned long frames;

static void
each(enum side side, const uint8_t *bytes, size_t length)
{
	uint8_t *copy = malloc(length);

	for (size_t cut = 0; cut <= length; cut++, frames++)
		machine_frame(side, bytes, length - cut, 0);
	for (size_t split = 1; split < length; split++, frames++)
		machine_frame(side, bytes, length, split);
	for (size_t bit = 0; bit < 8 * length; bit++, frames++) {
		memcpy(copy, bytes, length);
		copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
		machine_frame(side, copy, length, 0);
	}
	free(copy);
	machine_check();
}

int
main(int count, char **arguments)
{
	static uint8_t bytes[65536];
	char path[4096];
	struct dirent *entry;
	unsigned files = 0;
	DIR *corpus = count == 2 ? opendir(arguments[1]) : NULL;

	if (!corpus) {
		fprintf(stderr, "Usage: mutations CORPUS-DIR\n");
		return 2;
	}
	machine_start();
	while ((entry = readdir(corpus)) != NULL) {
		size_t length, size;
		FILE *file;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", arguments[1], entry->d_name);
		file = fopen(path, "rb");
		length = file ? fread(bytes, 1, sizeof(bytes), file) : 0;
		if (file)
			fclose(file);
		if (length < 4)
			continue;
		size = (size_t)(bytes[1] << 8 | bytes[2]);
		each(bytes[0] & 1 ? CORE : ACCESS, bytes + 3, size < length - 3 ? size : length - 3);
		files++;
	}
	closedir(corpus);
	machine_report();
	printf("%u packets, %lu variants\n", files, frames);
	return files ? 0 : 1;
}

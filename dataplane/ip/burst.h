#pragma once
#include "core/burst.h"

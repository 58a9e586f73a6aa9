// Tells clients which way each look-up is made.
#pragma once

#include "dataplane.pb-c.h"

// What is told stays where it is.
void fastest_tell(Sluice__V1__Greeting *greeting);

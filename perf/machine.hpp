// The machine under a benchmark: its clock, its cores, its name.
#pragma once

#include <string>

namespace pith_bench {

double seconds_now();  // of a monotonic clock

int core_count();  // cores that this thread may use
// Binds the calling thread to core number % core_count().
void pin_to_core(int number);

std::string cpu_model();

}  // namespace pith_bench

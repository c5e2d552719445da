// The table in nccl-tests' format, so that tools for its output work here.
#pragma once

#include <span>
#include <string>

#include "frame/options.hpp"
#include "frame/report.hpp"
#include "frame/resources.hpp"

namespace pith_perf {

// `value` with two decimals, or fewer if they do not fit into `width`.
std::string number(double value, int width);

std::string heading(const Options& options, std::string_view program, int version);
std::string rank_lines(std::span<const RankInfo> ranks);
std::string column_names(const Options& options);
// A line consists of a beginning and two halves.
std::string beginning(const Line& line);
std::string half(const Measured& measured);
// "compressed by topk_gather", or how many of both halves' calls were dense.
std::string how_it_went(const Ways& ways);
// As comment lines. `usage`: ordered by rank, then by line.
std::string resource_lines(std::span<const Usage> usage, int ranks);
std::string footer(const Summary& summary, std::string_view program);

}  // namespace pith_perf

// The table as nccl-tests prints it, so that what reads its output reads this too.
#pragma once

#include <span>
#include <string>

#include "frame/options.hpp"
#include "frame/report.hpp"
#include "frame/resources.hpp"

namespace pith_perf {

// `value` with two decimals, or fewer where it would not fit into `width`.
std::string number(double value, int width);

std::string heading(const Options& options, std::string_view program, int version);
std::string rank_lines(std::span<const RankInfo> ranks);
std::string column_names(const Options& options);
// A line is its beginning and two halves.
std::string beginning(const Line& line);
std::string half(const Measured& measured);
// "compressed by topk_gather", or how many calls were dense, of those of both halves.
std::string how_it_went(const Ways& ways);
// Comments to whatever reads the table. `usage`: a rank after the other, line after line.
std::string resource_lines(std::span<const Usage> usage, int ranks);
std::string footer(const Summary& summary, std::string_view program);

}  // namespace pith_perf

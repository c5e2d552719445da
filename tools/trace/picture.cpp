#include "picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

namespace pith_trace {

namespace {

using nlohmann::json;
using pith::Code;
using pith::Error;
using pith::Expected;

// Clocks of one host differ by less; those of separately booted hosts by more.
constexpr double same_clock_us = 1e4;

double microseconds(const json& line, const char* key) { return line.at(key).get<double>() / 1e3; }

Step step_of(const json& line) {
  Step step;
  step.id = line.at("id");
  step.op = line.at("op");
  step.name = line.value("name", "");
  if (line.contains("algorithm")) {
    step.name = fmt::format("{}:{}", step.name, line.at("algorithm").get<std::string>());
  }
  step.call = line.at("call");
  step.lane = line.value("lane", 0U);
  step.step = line.value("step", 0U);
  step.peer = line.value("peer", -1);
  step.bytes = line.at("bytes");
  step.buffer = line.value("buffer", 0U);
  step.offset = line.value("offset", std::uint64_t{0});
  step.begin_us = microseconds(line, "begin");
  step.ended = line.contains("end");
  step.end_us = step.ended ? microseconds(line, "end") : step.begin_us;
  step.failed = line.value("failed", false);
  if (line.contains("waits")) step.waits = line.at("waits").get<std::vector<std::uint64_t>>();
  return step;
}

const Step* find_call(const RankTrace& rank, std::uint32_t call) {
  for (const Step& step : rank.steps) {
    if (step.op == "call" && step.call == call) return &step;
  }
  return nullptr;
}

// Drops steps of other calls. Kernels do not record their call: those within its time are kept.
void keep_call(RankTrace& rank, std::uint32_t call) {
  const Step whole = *find_call(rank, call);
  std::erase_if(rank.steps, [&](const Step& step) {
    if (step.op != "kernel") return step.call != call;
    return step.begin_us < whole.begin_us || step.begin_us > whole.end_us;
  });
}

void shift(RankTrace& rank, double by_us) {
  for (Step& step : rank.steps) {
    step.begin_us += by_us;
    step.end_us += by_us;
  }
}

using Name = std::tuple<int, int, std::uint32_t, std::uint32_t>;

// Pairs sends and receives of the same name in the order of their starts.
void pair_messages(Picture& picture) {
  std::map<Name, std::vector<std::size_t>> sends;
  for (const RankTrace& rank : picture.ranks) {
    for (std::size_t i = rank.steps.size(); i-- > 0;) {
      const Step& step = rank.steps[i];
      if (step.op == "send") sends[{rank.rank, step.peer, step.lane, step.step}].push_back(i);
    }
  }
  for (const RankTrace& rank : picture.ranks) {
    for (std::size_t i = 0; i < rank.steps.size(); ++i) {
      const Step& step = rank.steps[i];
      if (step.op != "receive") continue;
      const auto found = sends.find({step.peer, rank.rank, step.lane, step.step});
      if (found == sends.end() || found->second.empty() || !step.ended) {
        ++picture.unpaired;
        continue;
      }
      picture.messages.push_back({step.peer, rank.rank, found->second.back(), i});
      found->second.pop_back();
    }
  }
  for (const auto& [name, left] : sends) picture.unpaired += left.size();
}

const Step& send_of(const Picture& picture, const Message& message) {
  return picture.ranks[static_cast<std::size_t>(message.from)].steps[message.send];
}
const Step& receive_of(const Picture& picture, const Message& message) {
  return picture.ranks[static_cast<std::size_t>(message.to)].steps[message.receive];
}

// Clocks of different hosts differ. They are shifted by time of day, then by the smallest shifts
// with which no message arrives before it was sent.
void align_clocks(Picture& picture) {
  const double wall_us = picture.ranks.front().wall_offset_us;
  for (RankTrace& rank : picture.ranks) {
    const double differs_us = rank.wall_offset_us - wall_us;
    if (std::abs(differs_us) > same_clock_us) shift(rank, differs_us);
  }
  for (std::size_t round = 0; round < picture.ranks.size(); ++round) {
    std::vector<double> late_us(picture.ranks.size());
    for (const Message& message : picture.messages) {
      const double early = send_of(picture, message).begin_us - receive_of(picture, message).end_us;
      double& late = late_us[static_cast<std::size_t>(message.to)];
      late = std::max(late, early);
    }
    if (std::ranges::all_of(late_us, [](double late) { return late <= 0; })) return;
    for (RankTrace& rank : picture.ranks) {
      shift(rank, late_us[static_cast<std::size_t>(rank.rank)]);
    }
  }
}

void start_at_zero(Picture& picture) {
  double begin_us = std::numeric_limits<double>::max();
  for (const RankTrace& rank : picture.ranks) {
    for (const Step& step : rank.steps) begin_us = std::min(begin_us, step.begin_us);
  }
  for (RankTrace& rank : picture.ranks) {
    shift(rank, -begin_us);
    for (const Step& step : rank.steps) picture.end_us = std::max(picture.end_us, step.end_us);
  }
}

Error check_ranks(const std::vector<RankTrace>& ranks) {
  if (ranks.empty()) return {Code::invalid_argument, "no trace is given, expected one a rank"};
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].ranks != static_cast<int>(ranks.size())) {
      return {Code::invalid_argument,
              fmt::format("traces of {} ranks are given, expected those of all {}", ranks.size(),
                          ranks[r].ranks)};
    }
    if (ranks[r].rank != static_cast<int>(r)) {
      return {Code::invalid_argument,
              fmt::format("the trace of rank {} is missing, or another is there twice", r)};
    }
  }
  return {};
}

}  // namespace

Expected<RankTrace> read_trace(const std::string& text, const std::string& name) {
  RankTrace trace;
  std::istringstream lines(text);
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    const json parsed = json::parse(line, nullptr, false);
    try {
      if (number == 1) {
        if (parsed.at("pith_trace") != 1) throw std::runtime_error("its version is not 1");
        trace.rank = parsed.at("rank");
        trace.ranks = parsed.at("ranks");
        trace.dropped = parsed.at("dropped");
        trace.wall_offset_us = microseconds(parsed, "wall_offset");
      } else if (parsed.contains("op")) {
        trace.steps.push_back(step_of(parsed));
      }
    } catch (const std::exception& failure) {
      return Error(Code::invalid_argument,
                   fmt::format("{}, line {}, is no line of a trace of Pith: {}", name, number,
                               failure.what()));
    }
  }
  if (trace.steps.empty()) {
    return Error(Code::invalid_argument, fmt::format("{} holds no steps of a trace", name));
  }
  return trace;
}

std::uint64_t Picture::bytes_sent(int rank) const {
  std::uint64_t bytes = 0;
  for (const Step& step : ranks[static_cast<std::size_t>(rank)].steps) {
    if (step.op == "send") bytes += step.bytes;
  }
  return bytes;
}

std::vector<CallInfo> complete_calls(const std::vector<RankTrace>& ranks) {
  std::vector<CallInfo> calls;
  if (ranks.empty()) return calls;
  for (const Step& step : ranks.front().steps) {
    if (step.op != "call") continue;
    const bool everywhere = std::ranges::all_of(ranks, [&](const RankTrace& rank) {
      const Step* found = find_call(rank, step.call);
      return found && found->ended;
    });
    if (everywhere) {
      calls.push_back({step.call, step.name, step.bytes, step.end_us - step.begin_us});
    }
  }
  return calls;
}

Expected<Picture> picture_of(std::vector<RankTrace> ranks, std::uint32_t call) {
  std::ranges::sort(ranks, {}, &RankTrace::rank);
  if (Error error = check_ranks(ranks)) return error;
  for (RankTrace& rank : ranks) {
    if (!find_call(rank, call)) {
      return Error(Code::invalid_argument,
                   fmt::format("call {} is not in the trace of rank {}", call, rank.rank));
    }
    keep_call(rank, call);
  }
  Picture picture;
  const Step& whole = *find_call(ranks.front(), call);
  picture.title = fmt::format("{}, {} bytes, {} ranks", whole.name, whole.bytes, ranks.size());
  picture.ranks = std::move(ranks);
  pair_messages(picture);
  align_clocks(picture);
  start_at_zero(picture);
  return picture;
}

}  // namespace pith_trace

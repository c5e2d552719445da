// The trace-event format: a process per rank, a thread per track, "X" events for steps, flow events
// for messages.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "picture.hpp"

namespace pith_trace {

namespace {

using nlohmann::json;

// Slices of a track must not overlap: each step goes to the first free track of its kind.
class Tracks {
 public:
  int track_of(const Step& step) {
    const int kind = step.op == "call" ? 0 : step.op == "kernel" ? 1 : step.op == "send" ? 2 : 3;
    std::vector<double>& free_us = free_us_[kind];
    std::size_t track = 0;
    while (track < free_us.size() && free_us[track] > step.begin_us) ++track;
    if (track == free_us.size()) free_us.push_back(0);
    free_us[track] = std::max(step.end_us, step.begin_us);
    constexpr int most_tracks = 10000;
    return kind * most_tracks + static_cast<int>(track);
  }

 private:
  std::map<int, std::vector<double>> free_us_;
};

std::string name_of(const Step& step) {
  if (step.op == "send") return fmt::format("send to {}", step.peer);
  if (step.op == "receive") return fmt::format("receive from {}", step.peer);
  return step.name;
}

json arguments_of(const Step& step) {
  json arguments = {{"bytes", step.bytes}, {"id", step.id}};
  if (step.peer >= 0) arguments.update({{"lane", step.lane}, {"step", step.step}});
  if (step.buffer != 0) arguments.update({{"buffer", step.buffer}, {"offset", step.offset}});
  if (!step.waits.empty()) arguments["waits"] = step.waits;
  if (step.failed) arguments["failed"] = true;
  return arguments;
}

json name_event(const char* what, int rank, int track, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", track}, {"args", {{"name", name}}}};
}

}  // namespace

std::string chrome_json(const Picture& picture) {
  json events = json::array();
  std::vector<std::vector<int>> tracks(picture.ranks.size());
  for (const RankTrace& rank : picture.ranks) {
    events.push_back(name_event("process_name", rank.rank, 0, fmt::format("rank {}", rank.rank)));
    Tracks free;
    std::map<int, std::string> names;
    for (const Step& step : rank.steps) {
      const int track = free.track_of(step);
      tracks[static_cast<std::size_t>(rank.rank)].push_back(track);
      names.emplace(track, step.op);
      events.push_back({{"ph", "X"},
                        {"name", name_of(step)},
                        {"cat", step.op},
                        {"pid", rank.rank},
                        {"tid", track},
                        {"ts", step.begin_us},
                        {"dur", step.end_us - step.begin_us},
                        {"args", arguments_of(step)}});
    }
    for (const auto& [track, name] : names) {
      events.push_back(name_event("thread_name", rank.rank, track, name));
    }
  }
  for (std::size_t i = 0; i < picture.messages.size(); ++i) {
    const Message& message = picture.messages[i];
    const auto end = [&](const char* phase, int rank, std::size_t step, double at_us) {
      const auto r = static_cast<std::size_t>(rank);
      json event = {{"ph", phase}, {"name", "message"},      {"cat", "message"}, {"id", i},
                    {"pid", rank}, {"tid", tracks[r][step]}, {"ts", at_us}};
      if (*phase == 'f') event["bp"] = "e";
      events.push_back(std::move(event));
    };
    const auto from = static_cast<std::size_t>(message.from);
    const auto to = static_cast<std::size_t>(message.to);
    end("s", message.from, message.send, picture.ranks[from].steps[message.send].begin_us);
    end("f", message.to, message.receive, picture.ranks[to].steps[message.receive].end_us);
  }
  return json({{"displayTimeUnit", "ns"},
               {"otherData", {{"title", picture.title}}},
               {"traceEvents", std::move(events)}})
      .dump();
}

}  // namespace pith_trace

// What a communicator has written of its choices (PITH_EXPLAIN_LOG), read again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithm.hpp"
#include "core/error.hpp"
#include "question.hpp"

namespace pith_explain {

struct RecordedTimes {
  std::size_t samples = 0;
  double median_s = 0;  // at the largest size of the class
  double doubt = 0;     // of its logarithm
};

struct RecordedWay {
  std::string name;                            // "ring in long chunks"
  const pith::Algorithm* algorithm = nullptr;  // null: this build has none of that name
  bool serves = true;
  bool is_rival = false;  // tried now and then
  double predicted_s = 0;
  std::optional<RecordedTimes> times;
};

// A collective at one class of sizes.
struct RecordedCell {
  std::string collective;
  std::size_t bytes = 0;  // at most
  std::uint64_t timed_calls = 0;
  bool forced = false;
  std::vector<RecordedWay> ways;
  std::size_t chosen = 0;

  const RecordedWay& takes() const { return ways[chosen]; }
  // The one with the least measured median; null: nothing was measured.
  const RecordedWay* fastest() const;
  // How much slower the chosen one is than the fastest: 0.1 for a tenth. None: not measured.
  std::optional<double> regret() const;
};

struct ChoiceRecord {
  bool ended = false;
  std::int64_t written_unix_s = 0;
  int ranks = 0;
  int hosts = 0;
  bool learns = false;
  bool views = false;
  bool oversubscribed = false;
  bool devices = false;
  pith::LinkCost link;
  std::vector<RecordedCell> cells;
};

// `name` is that of the file, for messages.
pith::Expected<ChoiceRecord> read_choices(const std::string& text, const std::string& name);

// Who makes calls, and over which link.
Question question_of(const ChoiceRecord& record);

// Every way of making the calls of every cell, with predicted and measured time, and why it is not
// taken. `now_unix_s`: to say how old the record is.
std::string text(const ChoiceRecord& record, std::int64_t now_unix_s);
std::string json_of(const ChoiceRecord& record);
// Time by size of one collective: a line for what is predicted of each way, dots for what it took.
pith::Expected<std::string> svg(const ChoiceRecord& record, const std::string& collective);
// The collective with the most timed calls; empty: none has any.
std::string most_timed(const ChoiceRecord& record);

}  // namespace pith_explain

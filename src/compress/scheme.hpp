// A compression scheme as an entry of the one table of them (schemes.cpp). Whoever treats schemes
// differently asks for what the entry says, and never which one it is; see SCHEMES.md.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "compress/spec.hpp"

namespace pith {

// One key of a scheme, and where its value lies in a spec.
struct Key {
  enum class Kind : std::uint8_t { word, integer, real };

  std::string_view name;
  std::span<const std::string_view> words = {};  // the values it may have; none: a number
  // Of a word its number, of a real number its bits.
  std::uint64_t (*get)(const Spec& spec) = nullptr;
  void (*set)(Spec& spec, std::uint64_t value) = nullptr;
  // Of a number: real ones are more than `least`, all are at most `most`; and this in words.
  Kind kind = Kind::word;
  double least = 0;
  double most = 0;
  std::string_view expected = {};
};

// Who elects the elements that a call moves.
enum class Electors : std::uint8_t {
  nobody,     // all elements move
  each_rank,  // its own k largest: lists differ from rank to rank
  leader,     // one rank for all of them
  owners,     // each rank in a part of its own, for all of them
  all_alike,  // what all ranks know, without a message
};

// What elements may move that have no elector above the threshold.
struct Unelected {
  std::size_t dummies = 0;   // at most so many in a call
  bool whole_parts = false;  // parts of which everything moves
};

struct SchemeState;
class StateWriter;
class StateReader;
// Whose state is read.
struct StateShape {
  const Spec& spec;
  std::size_t count;
};
// A part of a scheme's state as bytes, by name.
struct StateSection {
  std::string_view name;
  void (*save)(const SchemeState& state, StateWriter& out);
  // False: these bytes are no such state. What is left unread is an error too.
  bool (*load)(SchemeState& state, const StateShape& shape, StateReader& in);
};

struct Scheme {
  std::string_view name;
  std::string_view summary;  // one line, for people
  Electors electors = Electors::nobody;
  std::string_view exchange;  // its coroutine, by its name in collectives/exchanges.cpp
  std::span<const Key> keys = {};
  // What a spec has before its keys are read.
  double density = 0;
  DType values = DType::f32;
  Spec::Choices choices = {};
  // Defaults that follow from other keys; `keys` are those that the text names. May be null.
  void (*complete)(Spec& spec, std::span<const std::string_view> keys) = nullptr;
  // Besides those of all schemes, see saved_state.cpp.
  std::span<const StateSection> sections = {};
  // For checks from outside. What it moves unelected; null: nothing.
  Unelected (*unelected)(const Spec& spec, int ranks) = nullptr;
  // Of a leader: whether that rank may lead this step, by the squares of what each would send.
  bool (*may_lead)(const Spec& spec, std::uint64_t step, std::span<const double> squares,
                   std::size_t leader) = nullptr;
};

// In the order of the table.
std::span<const Scheme* const> schemes();

}  // namespace pith

// Answers as text, as a table by size, as a picture and as JSON.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "answer.hpp"

namespace pith_explain {

struct SizedAnswer {
  std::size_t bytes = 0;
  Answer answer;
};

std::string name_of_size(double bytes);    // "4M", "1000"
std::string name_of_time(double seconds);  // "12.3 us"

std::string times_as_dear(double ratio);  // "1.37 times as dear as the cheapest"

std::string place_and_link(const Question& question);
// The same with the call.
std::string heading(const Question& question);
// Every candidate with its cost, and why it is not taken.
std::string text(const Question& question, const Answer& answer);
// A line a size.
std::string table(const std::vector<SizedAnswer>& answers);
// Cost by size, a line for every candidate; dots mark what the library takes.
std::string svg(const Question& question, const std::vector<SizedAnswer>& answers);
std::string json(const Question& question, const std::vector<SizedAnswer>& answers);

}  // namespace pith_explain

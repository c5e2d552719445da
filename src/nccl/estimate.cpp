#include "nccl/estimate.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "model/cheapest.hpp"
#include "model/nominal.hpp"

namespace pith::nccl {

namespace {

// Removes a positive number and the following `mark` from the front; '\0' means the end of text.
std::optional<double> take_number(std::string_view& text, char mark) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || !(number > 0 && number < 1e9)) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  const bool fits = mark == '\0' ? text.empty() : text.starts_with(mark);
  if (!fits) return std::nullopt;
  if (mark != '\0') text.remove_prefix(1);
  return number;
}

std::optional<LinkCost> take_line(std::string_view& text, char mark) {
  const std::optional<double> microseconds = take_number(text, ':');
  if (!microseconds) return std::nullopt;
  const std::optional<double> gigabytes = take_number(text, mark);
  if (!gigabytes) return std::nullopt;
  return LinkCost{*microseconds * 1e-6, 1e-9 / *gigabytes, 0};
}

}  // namespace

Expected<Lines> Lines::read(const std::string& text) {
  std::string_view left = text;
  const std::optional<LinkCost> here = take_line(left, ',');
  const std::optional<LinkCost> there = here ? take_line(left, '\0') : std::nullopt;
  if (there) return Lines{*here, *there};
  return Error(Code::invalid_argument,
               fmt::format("PITH_NCCL_FALLBACK_LINES is \"{}\", expected microseconds:GB/s of a "
                           "message here, and after a comma there, as 20:10,15:22",
                           text));
}

LinkCost guessed_link(const Shape& shape) { return shape.views ? nominal::memory : nominal::wire; }

bool is_message(Kind kind) { return kind == Kind::send || kind == Kind::recv; }

Collective collective_of(Kind kind) {
  switch (kind) {
    case Kind::broadcast:
    case Kind::bcast:
      return Collective::broadcast;
    case Kind::reduce:
      return Collective::reduce;
    case Kind::allgather:
      return Collective::allgather;
    case Kind::reduce_scatter:
      return Collective::reduce_scatter;
    case Kind::alltoall:
      return Collective::alltoall;
    case Kind::gather:
      return Collective::gather;
    case Kind::scatter:
      return Collective::scatter;
    default:
      return Collective::allreduce;
  }
}

double seconds_here(const Shape& shape, Collective collective, const LinkCost& link) {
  return cost_on(link, cheapest_algorithm(shape, collective, link), shape);
}

double seconds_there(Shape shape, Collective collective, const LinkCost& link) {
  shape.views = shape.oversubscribed = shape.devices = false;
  return seconds_here(shape, collective, link);
}

bool is_faster_there(const Lines& lines, const Shape& shape, Collective collective) {
  return seconds_there(shape, collective, lines.there) <
         seconds_here(shape, collective, lines.here);
}

double seconds_of_message(std::size_t bytes, const LinkCost& link) {
  return link.alpha + link.beta * static_cast<double>(bytes);
}

}  // namespace pith::nccl

// Serialization of plain values and strings for control messages and blobs. All machines of a job
// must have the same byte order, which the transports assume as well.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pith {

class Packer {
 public:
  template <class T>
  Packer& value(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Packer& text(std::string_view text) {
    value(static_cast<std::uint32_t>(text.size()));
    out_.append(text);
    return *this;
  }
  Packer& numbers(const std::vector<int>& numbers) {
    value(static_cast<std::uint32_t>(numbers.size()));
    for (const int number : numbers) value(number);
    return *this;
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads past the end return zeros and empty strings, and make whole() false.
class Unpacker {
 public:
  explicit Unpacker(std::string_view in) : in_(in) {}

  template <class T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (in_.size() < sizeof value) {
      short_ = true;
      in_ = {};
      return value;
    }
    std::memcpy(&value, in_.data(), sizeof value);
    in_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view text() {
    const auto size = value<std::uint32_t>();
    if (in_.size() < size) {
      short_ = true;
      in_ = {};
      return {};
    }
    const std::string_view text = in_.substr(0, size);
    in_.remove_prefix(size);
    return text;
  }
  std::vector<int> numbers() {
    const auto size = value<std::uint32_t>();
    std::vector<int> numbers;
    for (std::uint32_t i = 0; i < size && !short_; ++i) numbers.push_back(value<int>());
    return numbers;
  }
  // True unless a read went past the end.
  bool whole() const { return !short_; }
  bool empty() const { return in_.empty(); }

 private:
  std::string_view in_;
  bool short_ = false;
};

}  // namespace pith

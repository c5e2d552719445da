// The state of one vector: what a failure, a return and a scale leave.
#include "compress/compressor.hpp"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compress/saved_state.hpp"
#include "kernels/host_compute.hpp"
#include "tests/catch.hpp"
#include "tests/compress/saved_checksum.hpp"

namespace pith::test {

namespace {

constexpr std::size_t count = 8;
using Floats = std::vector<float>;

struct Vector {
  explicit Vector(const char* spec) : compressor(std::move(*Compressor::create(spec))) {
    compressor->shape(count, DType::f32);
  }
  // A call that takes the elements at these indices.
  void begin(std::uint32_t call, const Floats& gradient) {
    given = gradient;
    compressor->begin(call, {reinterpret_cast<const std::byte*>(given.data()), DType::f32});
    compressor->add_rest(host);
  }
  void take(const std::vector<std::uint32_t>& indices) {
    PairList& taken = compressor->taken();
    taken.reserve(indices.size());
    std::copy(indices.begin(), indices.end(), taken.indices(taken.count()));
    double squares = 0;
    host.run<TakeKernel>({compressor->accumulator(), indices.data(), indices.size(),
                          taken.values(taken.count()), taken.type(), &squares});
    taken.end_run(indices.size());
  }
  Floats residual() const {
    if (compressor->residual_is_zero()) return Floats(count);
    return {compressor->accumulator(), compressor->accumulator() + count};
  }

  HostCompute host;
  std::unique_ptr<Compressor> compressor;
  Floats given;
};

std::vector<std::byte> bytes_of(const Vector& v) {
  std::vector<std::byte> bytes(saved_bytes(*v.compressor));
  save(*v.compressor, bytes.data());
  return bytes;
}

const Floats ones(count, 1);
const Floats twos(count, 2);

}  // namespace

namespace {

// A device in the host's memory that has room for so many vectors.
class SmallDevice : public DeviceVectors {
 public:
  explicit SmallDevice(int room) : room_(room) {}
  std::byte* take(std::size_t bytes) override {
    return room_-- > 0 ? new std::byte[bytes] : nullptr;
  }
  void give(std::byte* memory, std::size_t) override {
    ++given;
    delete[] memory;
  }
  Compute& compute() override { return host_; }
  Compute& pinned() override { return host_; }
  int given = 0;

 private:
  int room_;
  HostCompute host_;
};

}  // namespace

TEST_CASE("a move to a device that has room for half of it moves nothing") {
  SmallDevice device(1);
  Vector v("topk");
  v.begin(1, ones);
  v.compressor->fail(v.host);
  v.compressor->make_room_for_whole();
  const float* before = v.compressor->accumulator();
  CHECK_THROWS_AS(v.compressor->move_to(&device), std::bad_alloc);
  CHECK(device.given == 1);
  CHECK(v.compressor->accumulator() == before);
  CHECK(v.residual() == ones);
  SmallDevice larger(2);
  REQUIRE_FALSE(v.compressor->move_to(&larger));
  CHECK(v.compressor->accumulator() != before);
  CHECK(v.residual() == ones);
  REQUIRE_FALSE(v.compressor->move_to(nullptr));
  CHECK(larger.given == 2);
  CHECK(v.residual() == ones);
}

TEST_CASE("a failed call leaves residual plus gradient, and the step") {
  Vector v("topk");
  v.begin(1, ones);
  v.take({0, 3});
  v.compressor->forecast.saw(1);
  v.compressor->fail(v.host);
  CHECK(v.residual() == ones);
  CHECK(v.compressor->step == 0);
  CHECK_FALSE(v.compressor->forecast.known());
}

TEST_CASE("a call that fails adds what it has not added, wherever that lies") {
  Vector v("exdyna");
  v.given = ones;
  v.compressor->begin(1, {reinterpret_cast<const std::byte*>(v.given.data()), DType::f32});
  v.compressor->expect_ranges(3);
  PassResult found;
  for (const std::size_t begin : {6, 1, 4}) {
    v.host.run<AccumulateKernel>(v.compressor->pass(begin, 1, found));
  }
  v.take({4});
  CHECK(v.residual() == Floats{0, 1, 0, 0, 0, 0, 1, 0});
  v.compressor->fail(v.host);
  CHECK(v.residual() == ones);
}

TEST_CASE("calls that others did not complete go back, however often a later one fails") {
  Vector v("topk");
  v.begin(4, ones);
  v.take({0});
  v.compressor->end(v.host);
  v.begin(5, ones);
  v.take({1, 2});
  v.compressor->end(v.host);
  for (std::uint32_t call = 6; call < 9; ++call) {
    v.begin(call, Floats(count, 0));
    v.take({5});
    v.compressor->fail(v.host);
  }
  v.compressor->return_after(v.host, 4);
  CHECK(v.residual() == Floats{1, 2, 2, 2, 2, 2, 2, 2});
  CHECK(v.compressor->step == 1);
  v.compressor->return_after(v.host, 4);  // once
  CHECK(v.compressor->step == 1);
}

TEST_CASE("two calls go back at once") {
  Vector v("topk");
  v.begin(4, ones);
  v.take({0});
  v.compressor->end(v.host);
  v.begin(5, ones);
  v.take({0, 2});
  v.compressor->end(v.host);
  v.compressor->return_after(v.host, 3);
  CHECK(v.residual() == twos);
  CHECK(v.compressor->step == 0);
}

TEST_CASE("a whole call goes back too, from beneath the next one") {
  Vector v("none");
  v.begin(1, twos);
  v.compressor->take_all();
  v.compressor->end(v.host);
  CHECK(v.residual() == Floats(count));
  v.begin(2, ones);
  v.compressor->fail(v.host);
  CHECK(v.residual() == ones);
  v.compressor->return_after(v.host, 0);
  CHECK(v.residual() == Floats(count, 3));
  CHECK(v.compressor->step == 0);
}

TEST_CASE("what goes back follows a changed scale") {
  for (const char* spec : {"topk", "topk:values=bf16"}) {
    Vector v(spec);
    v.begin(1, twos);
    v.take({1, 6});
    v.compressor->end(v.host);
    v.compressor->scale(v.host, 0.25f);
    v.compressor->return_after(v.host, 0);
    CHECK(v.residual() == Floats(count, 0.5f));
  }
}

TEST_CASE("what a call leaves stays, and what it sent goes back") {
  Vector v("efsign");
  const auto send = [&](std::uint32_t call, const Floats& gradient, float sent) {
    v.begin(call, gradient);
    v.compressor->make_room_for_whole();
    std::fill_n(v.compressor->changes(), count, -sent);
    v.compressor->take_all();
    v.compressor->end(v.host);
  };
  send(1, twos, 0.5f);
  CHECK(v.residual() == Floats(count, 1.5f));
  send(2, ones, 1);  // the first call can no longer go back
  CHECK(v.residual() == Floats(count, 1.5f));
  v.begin(3, ones);
  std::fill_n(v.compressor->changes(), count, -4.0f);
  v.compressor->take_all();
  v.compressor->fail(v.host);
  CHECK(v.residual() == Floats(count, 2.5f));
  v.compressor->scale(v.host, 0.25f);
  v.compressor->return_after(v.host, 1);
  CHECK(v.residual() == Floats(count, 0.875f));
  CHECK(v.compressor->step == 1);
}

TEST_CASE("without feedback only failures keep something") {
  Vector v("topk:feedback=0");
  v.begin(1, ones);
  v.take({1});
  v.compressor->end(v.host);
  CHECK(v.residual() == Floats(count));
  v.begin(2, twos);
  v.compressor->fail(v.host);
  CHECK(v.residual() == twos);
  v.begin(3, ones);
  v.compressor->fail(v.host);
  CHECK(v.residual() == Floats(count, 3));
}

TEST_CASE("an accumulator that was lent stays where it is") {
  for (const char* spec : {"topk", "none", "topk:feedback=0"}) {
    Vector v(spec);
    float* memory = v.compressor->lend_accumulator(v.host);
    for (std::uint32_t call = 1; call < 4; ++call) {
      std::fill_n(memory, count, 1.0f);
      v.compressor->begin(call, {reinterpret_cast<const std::byte*>(memory), DType::f32});
      v.compressor->add_rest(v.host);
      if (v.compressor->spec().sparse()) {
        v.take({2});
      } else {
        v.compressor->take_all();
      }
      v.compressor->end(v.host);
      CHECK(v.compressor->accumulator() == memory);
      CHECK_FALSE(v.compressor->residual_is_zero());
      CHECK(v.residual()[2] == 0);
      CHECK(v.residual()[3] == (v.compressor->spec().sparse() && v.compressor->spec().feedback));
    }
  }
}

TEST_CASE("the first state that is loaded tells the step, later ones add") {
  Vector a("topk");
  a.begin(1, ones);
  a.compressor->end(a.host);
  Vector b("topk");
  for (std::uint32_t call = 1; call < 4; ++call) {
    b.begin(call, ones);
    b.compressor->end(b.host);
  }
  const auto target = std::move(*Compressor::create("topk"));
  CHECK_FALSE(load(*target, a.host, bytes_of(a)));
  CHECK_FALSE(load(*target, a.host, bytes_of(b)));
  CHECK(target->step == 1);
  CHECK(Floats(target->accumulator(), target->accumulator() + count) == Floats(count, 4));
  // One that has called keeps its own.
  CHECK_FALSE(load(*b.compressor, b.host, bytes_of(a)));
  CHECK(b.compressor->step == 3);
}

TEST_CASE("a density that adapts goes back with its call, and is saved") {
  const char* const adapting = "topk:density=auto";
  const auto call = [](Vector& v, std::uint32_t number, double density) {
    v.begin(number, ones);
    SchemeState state = *v.compressor;
    state.density_control.density = density;
    v.compressor->set_state(state);
  };
  Vector v(adapting);
  const double first = v.compressor->spec().density;
  const std::uint64_t digest = v.compressor->digest();
  call(v, 1, 0.05);
  v.compressor->end(v.host);
  CHECK(v.compressor->spec().density == 0.05);
  call(v, 2, 0.002);
  CHECK(v.compressor->spec().density == 0.002);
  v.compressor->fail(v.host);
  CHECK(v.compressor->spec().density == 0.05);

  const auto loaded = std::move(*Compressor::create(adapting));
  CHECK_FALSE(load(*loaded, v.host, bytes_of(v)));
  CHECK(loaded->spec().density == 0.05);
  CHECK(loaded->digest() == v.compressor->digest());
  const auto is_loaded = [&](const char* spec, double density) {
    Vector other(spec);
    call(other, 1, density);
    other.compressor->end(v.host);
    return !load(*std::move(*Compressor::create(spec)), v.host, bytes_of(other));
  };
  for (const double density : {0.0, double(0.001F), double(0.1F), 1.0}) {
    CHECK(is_loaded(adapting, density));
  }
  for (const double density : {-0.1, 1e-9, 0.0009, 0.11, 1.5, double(NAN)}) {
    CHECK_FALSE(is_loaded(adapting, density));
  }
  CHECK_FALSE(is_loaded("topk:density=auto,bypass=never", 1.0));

  v.compressor->return_after(v.host, 0);
  CHECK(v.compressor->spec().density == first);
  CHECK(v.compressor->digest() == digest);
  call(v, 3, 0.05);
  v.compressor->end(v.host);
  v.compressor->reset();
  CHECK(v.compressor->spec().density == first);
}

TEST_CASE("a form goes back with its call, and is saved") {
  const char* const quantising = "topk:density=auto,quantise=qsgd8,bypass=never";
  const auto call = [](Vector& v, std::uint32_t number, double density, Form form) {
    v.begin(number, ones);
    SchemeState state = *v.compressor;
    state.density_control.density = density;
    state.density_control.form = form;
    state.density_control.moved = true;
    v.compressor->set_state(state);
  };
  Vector v(quantising);
  CHECK(v.compressor->spec().form == Form::qsgd8);
  const std::uint64_t digest = v.compressor->digest();
  call(v, 1, 0.05, Form::none);
  v.compressor->end(v.host);
  CHECK(v.compressor->spec().form == Form::none);
  call(v, 2, 1, Form::qsgd8);
  CHECK(v.compressor->spec().form == Form::qsgd8);
  CHECK(v.compressor->spec().density == 1);
  v.compressor->fail(v.host);
  CHECK(v.compressor->spec().form == Form::none);
  CHECK(v.compressor->spec().density == 0.05);

  const auto is_loaded = [&](const char* spec, double density, Form form) {
    Vector other(spec);
    call(other, 1, density, form);
    other.compressor->end(v.host);
    const auto loaded = std::move(*Compressor::create(spec));
    const bool good = !load(*loaded, v.host, bytes_of(other));
    CHECK((!good || loaded->digest() == other.compressor->digest()));
    CHECK((!good || loaded->spec() == other.compressor->spec()));
    CHECK((!good || loaded->density_control.moved));
    return good;
  };
  CHECK(is_loaded(quantising, 0.05, Form::none));
  CHECK(is_loaded(quantising, 1, Form::qsgd8));
  CHECK_FALSE(is_loaded(quantising, 1, Form::qsgd4));
  CHECK_FALSE(is_loaded(quantising, 0.05, Form::qsgd8));
  CHECK_FALSE(is_loaded(quantising, 1, Form::none));
  CHECK_FALSE(is_loaded("topk:density=auto", 1, Form::qsgd8));
  CHECK(is_loaded("topk:density=auto,quantise=auto", 1, Form::qsgd4));
  CHECK_FALSE(is_loaded("topk:density=auto,quantise=auto", 1, static_cast<Form>(4)));

  v.compressor->return_after(v.host, 0);
  CHECK(v.compressor->digest() == digest);
}

TEST_CASE("a state of another version is refused, and changes nothing") {
  Vector v("topk");
  v.begin(1, ones);
  v.compressor->end(v.host);
  const std::vector<std::byte> before = bytes_of(v);
  const auto with_version = [&](std::uint32_t version) {
    constexpr std::size_t behind_magic = 8;
    std::string body(reinterpret_cast<const char*>(before.data()),
                     before.size() - sizeof(std::uint64_t));
    std::memcpy(body.data() + behind_magic, &version, sizeof version);
    append_checksum(body);
    return body;
  };
  const auto load_version = [&](std::uint32_t version) {
    const std::string text = with_version(version);
    return load(*v.compressor, v.host, std::as_bytes(std::span(text)));
  };
  for (const std::uint32_t version : {0u, 2u, 0x01000000u, ~0u}) {
    const Error error = load_version(version);
    CHECK(error.code() == Code::invalid_argument);
    CHECK(error.message() ==
          "the saved state has version " + std::to_string(version) + ", expected 1");
    CHECK(bytes_of(v) == before);
  }
  CHECK_FALSE(load_version(1));
  CHECK(v.residual() == twos);
}

TEST_CASE("a state whose spec was written before there were other keys is loaded") {
  Vector v("topk");
  v.begin(1, ones);
  v.compressor->end(v.host);
  const std::vector<std::byte> saved = bytes_of(v);
  const std::string now = v.compressor->spec().text();
  const auto with_spec = [&](std::string_view spec) {
    constexpr std::size_t begin = 8 + 4;
    std::string body(reinterpret_cast<const char*>(saved.data()),
                     saved.size() - sizeof(std::uint64_t));
    const std::uint64_t size = spec.size();
    body.replace(begin, sizeof size + now.size(), reinterpret_cast<const char*>(&size),
                 sizeof size);
    body.insert(begin + sizeof size, spec);
    append_checksum(body);
    return body;
  };
  const auto load_spec = [&](std::string_view spec) {
    const std::string text = with_spec(spec);
    const auto target = std::move(*Compressor::create("topk"));
    return load(*target, v.host, std::as_bytes(std::span(text)));
  };
  CHECK_FALSE(load_spec(now));
  CHECK_FALSE(
      load_spec("topk:density=0.01,exchange=auto,values=f32,feedback=1,hierarchy=flat,"
                "bypass=auto,nonfinite=propagate,seed=0"));
  CHECK(load_spec("topk:density=0.02"));
  CHECK(load_spec("topk:density=0.01,later=1"));
  CHECK(load_spec("topk-of-tomorrow"));
}

// Once every scheme saved the sections of all.
TEST_CASE("sections of other schemes are left out, those of none refused") {
  Vector v("topk");
  v.begin(1, ones);
  v.compressor->end(v.host);
  const std::vector<std::byte> saved = bytes_of(v);
  const auto with_section = [&](const std::string& name) {
    std::string body(reinterpret_cast<const char*>(saved.data()),
                     saved.size() - sizeof(std::uint64_t));
    const auto put = [&](std::size_t at, std::uint64_t value, bool insert) {
      const std::string bytes(reinterpret_cast<const char*>(&value), sizeof value);
      body.replace(at, insert ? 0 : sizeof value, bytes);
    };
    const std::size_t residual = body.size() - count * sizeof(float);
    put(residual, 3, true);
    body.insert(residual + sizeof(std::uint64_t), "xyz");
    body.insert(residual, name);
    put(residual, name.size(), true);
    const std::size_t number = 8 + 4 + 8 + v.compressor->spec().text().size() + 2 + 8 + 8;
    std::uint64_t sections = 0;
    std::memcpy(&sections, body.data() + number, sizeof sections);
    put(number, sections + 1, false);
    append_checksum(body);
    return body;
  };
  const auto load_with = [&](const std::string& name) {
    const auto target = std::move(*Compressor::create("topk"));
    const std::string text = with_section(name);
    Error error = load(*target, v.host, std::as_bytes(std::span(text)));
    CHECK(target->step == (error ? 0 : 1));
    return error;
  };
  CHECK_FALSE(load_with("raw norm"));
  CHECK_FALSE(load_with("exdyna"));
  CHECK(load_with("momentum").code() == Code::invalid_argument);
}

TEST_CASE("what rounding of sums lost goes when the call is undone") {
  Vector v("ar-topk:values=bf16");
  v.begin(1, ones);
  v.take({0, 3});
  const Floats losses{0.25f, 0};
  const std::vector<std::uint32_t> indices{0, 3};
  v.compressor->keep_losses(v.host,
                            {indices.data(), reinterpret_cast<const std::byte*>(losses.data()), 2});
  CHECK(v.residual() == Floats{0.25f, 1, 1, 0, 1, 1, 1, 1});
  v.compressor->end(v.host);
  v.compressor->scale(v.host, 2);
  v.compressor->return_after(v.host, 0);
  CHECK(v.residual() == twos);
}

TEST_CASE("the smoothed norm of gradients follows the scale, also of a call that is undone") {
  Vector v("ar-topk:election=variance,score=raw");
  v.compressor->raw_norm.saw(8);
  v.begin(1, ones);
  v.compressor->raw_norm.saw(16);
  const double both = v.compressor->raw_norm.value();
  v.compressor->end(v.host);
  v.compressor->scale(v.host, -0.25f);
  CHECK(v.compressor->raw_norm.value() == both / 4);
  v.compressor->return_after(v.host, 0);
  CHECK(v.compressor->raw_norm.value() == 2);
}

}  // namespace pith::test

#include <bit>
#include <cmath>

#include <doctest/doctest.h>

#include "core/safetensors.h"
#include "optim/code_map.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// What a byte can say. The map decides which numbers between -1 and 1 the 256 codes stand for; a
// number becomes the code whose value is nearest.

namespace {

// The k-th float after x.
float after(float x, int k) {
  for (; k > 0; --k)
    x = std::nextafter(x, 2.0f);
  for (; k < 0; ++k)
    x = std::nextafter(x, -2.0f);
  return x;
}

// The nearest code by asking every boundary.
int by_search(const CodeMap& map, float x) {
  const bool fp8 = map.rules().order == CodeMap::Order::sign_magnitude;
  if (fp8 && std::signbit(x)) {
    const CodeMap& without_floor =
        code_map(map.rules().last == 0x7E ? "fp8_e4m3" : "fp8_e5m2", true);
    return by_search(without_floor, -x) | 0x80;
  }
  int code = 0;
  while (code < map.rules().last) {
    const double sum = double(map.value(uint8_t(code))) + double(map.value(uint8_t(code + 1)));
    const float boundary = float(sum / 2.0);
    const bool tie_goes_up = map.rules().ties == CodeMap::Ties::to_even && code % 2 == 1;
    if (x < boundary || (x == boundary && !tie_goes_up)) break;
    ++code;
  }
  if (map.rules().floor && x > 0 && map.value(uint8_t(code)) == 0) ++code;
  return code;
}

std::vector<int> codes_of(const CodeMap& map, const std::vector<float>& numbers) {
  std::vector<int> codes;
  for (const float x : numbers)
    codes.push_back(map.nearest(x));
  return codes;
}

}  // namespace

TEST_CASE("code map: the dynamic code book: seven decades, each twice as finely cut as the last") {
  // Decade i reaches from 0.1 to 1 times 10^(i - 6) and is cut into 2^i parts; the codes are the
  // middles of the parts: (0.1 + (j + 0.5) * 0.9 / 2^i) * 10^(i - 6). Large numbers get many codes,
  // small ones get few, but down to a millionth of the largest they get one.
  struct Decade {
    int first_code, last_code;
    double first, last;
  };
  const CodeMap& map = code_map("dynamic", true);
  for (const Decade& decade :
       {Decade{128, 128, 5.5e-7, 5.5e-7}, Decade{129, 130, 3.25e-6, 7.75e-6},
        Decade{131, 134, 2.125e-5, 8.875e-5}, Decade{135, 142, 1.5625e-4, 9.4375e-4},
        Decade{143, 158, 1.28125e-3, 9.71875e-3}, Decade{159, 190, 0.01140625, 0.09859375},
        Decade{191, 254, 0.10703125, 0.99296875}}) {
    CHECK(map.value(uint8_t(decade.first_code)) == float(decade.first));
    CHECK(map.value(uint8_t(decade.last_code)) == float(decade.last));
    // Code 127 is zero, and negative numbers mirror the positive ones about it.
    CHECK(map.value(uint8_t(254 - decade.first_code)) == -float(decade.first));
    CHECK(map.value(uint8_t(254 - decade.last_code)) == -float(decade.last));
  }
  CHECK(map.value(127) == 0.0f);
  CHECK(map.value(255) == 1.0f);        // one code is left over for 1
  CHECK(map.value(0) == -0.99296875f);  // and none for -1
  double sum = 0;
  for (const float value : map.values())
    sum += double(value);
  CHECK(sum == 1.0);
}

TEST_CASE("code map: numbers without sign have twice as many codes in each decade") {
  const CodeMap& map = code_map("dynamic", false);
  const std::pair<int, double> expected[] = {{0, 0},
                                             {1, 3.25e-7},
                                             {2, 7.75e-7},
                                             {7, 1.5625e-5},
                                             {31, 1.140625e-3},
                                             {63, 0.010703125},
                                             {127, 0.103515625},
                                             {254, 0.996484375},
                                             {255, 1}};
  for (const auto& [code, value] : expected)
    CHECK(map.value(uint8_t(code)) == float(value));
}

TEST_CASE("code map: the values are those of the published definition, bit for bit") {
  const Checkpoint data = read_safetensors(MINIM_TEST_DATA "/optimizers/quantize.safetensors");
  for (const bool is_signed : {true, false})
    for (const bool library : {false, true}) {
      const CodeMap& map = code_map(library ? "bitsandbytes" : "dynamic", is_signed);
      const std::string name = fmt::format("{}/{}", library ? "library" : "closed_form",
                                           is_signed ? "signed" : "unsigned");
      const auto expected = data.tensor(name).to_vector<float>();
      for (size_t code = 0; code < 256; ++code)
        CHECK(std::bit_cast<uint32_t>(map.values()[code]) ==
              std::bit_cast<uint32_t>(expected[code]));
    }
}

TEST_CASE("code map: nearest codes, looked up by hand") {
  CHECK(codes_of(code_map("dynamic", true), {-1, -0.5f, -0.1f, -0.001f, -3e-7f, 0, 3e-7f, 2e-6f,
                                             1e-5f, 0.1f, 0.5f, 0.75f, 1}) ==
        std::vector<int>{0, 35, 64, 112, 126, 127, 128, 129, 130, 190, 219, 237, 255});
  CHECK(codes_of(code_map("dynamic", false),
                 {0, 1.7e-7f, 1e-6f, 1e-5f, 1e-4f, 0.01f, 0.1f, 0.25f, 0.5f, 1}) ==
        std::vector<int>{0, 1, 2, 6, 14, 62, 126, 148, 183, 255});
}

TEST_CASE(
    "code map: the look-up finds what a search through all codes finds, around each boundary") {
  std::vector<std::string_view> names = code_map_names();
  names.push_back("bitsandbytes");
  for (const std::string_view name : names)
    for (const bool is_signed : {true, false})
      for (const bool floor : {false, true}) {
        CAPTURE(name);
        CAPTURE(is_signed);
        CAPTURE(floor);
        const CodeMap& map = code_map(name, is_signed, floor);
        int64_t wrong = 0;
        const auto compare = [&](float x) { wrong += map.nearest(x) != by_search(map, x); };
        for (int code = 0; code < 255; ++code) {
          const double low = map.value(uint8_t(code)), high = map.value(uint8_t(code + 1));
          if (std::isnan(low + high)) continue;
          for (int k = -2; k <= 2; ++k)
            compare(after(float((low + high) / 2), k));
        }
        for (const float x : noise(4000, 3))
          for (const float scale : {1.0f, 1e-2f, 1e-4f, 1e-6f})
            compare(is_signed ? x * scale : std::abs(x) * scale);
        for (const float x : {0.0f, 1e-45f, 1e-38f, 1.0f, 2.0f, INFINITY})
          compare(x);
        CHECK(wrong == 0);
      }
}

TEST_CASE("code map: a number on the boundary gets the even code, in bitsandbytes' map the lower") {
  for (const bool is_signed : {true, false})
    for (int code = 0; code < 255; ++code) {
      const auto boundary = [code](const CodeMap& map) {
        return float((double(map.value(uint8_t(code))) + double(map.value(uint8_t(code + 1)))) / 2);
      };
      const CodeMap& ours = code_map("dynamic", is_signed);
      CHECK(ours.nearest(boundary(ours)) == (code % 2 == 0 ? code : code + 1));
      const CodeMap& library = code_map("bitsandbytes", is_signed);
      CHECK(library.nearest(boundary(library)) == code);
    }
}

TEST_CASE("code map: with a floor no positive number gets the code of zero") {
  const float tiny = std::numeric_limits<float>::denorm_min();
  CHECK(codes_of(code_map("dynamic", false, false), {0, tiny, 1e-7f}) == std::vector<int>{0, 0, 0});
  CHECK(codes_of(code_map("dynamic", false, true), {0, tiny, 1e-7f}) == std::vector<int>{0, 1, 1});
  CHECK(codes_of(code_map("dynamic", true, true), {-tiny, 0, tiny}) ==
        std::vector<int>{127, 127, 128});
}

TEST_CASE("code map: each value is the nearest to itself, and NaN has a code of its own") {
  for (const std::string_view name : code_map_names())
    for (const bool is_signed : {true, false}) {
      const CodeMap& map = code_map(name, is_signed);
      for (int code = 0; code < 256; ++code) {
        const float value = map.value(uint8_t(code));
        const bool unused = std::isnan(value) || (code > map.rules().last && value == 1.0f);
        if (!unused) CHECK(map.nearest(value) == code);
      }
      CHECK(map.nearest(NAN) == map.rules().nan);
      CHECK(map.nearest(-NAN) == map.rules().nan);
    }
}

TEST_CASE("code map: FP8 codes are the bit patterns of 8-bit floats over the largest") {
  // E4M3: 4 bits of exponent, biased by 7, and 3 of mantissa; the largest is 1.75 * 2^8 = 448.
  const CodeMap& e4m3 = code_map("fp8_e4m3", true);
  CHECK(e4m3.value(0x38) == float(1.0 / 448));
  CHECK(e4m3.value(0x01) == float(0x1p-9 / 448));  // subnormal
  CHECK(e4m3.value(0xC4) == float(-3.0 / 448));    // 1.5 * 2
  CHECK(e4m3.value(0x7E) == 1.0f);
  CHECK(std::isnan(e4m3.value(0x7F)));
  // E5M2: 5 bits, biased by 15, and 2; the largest is 1.75 * 2^15 = 57344. 0x7C is infinity.
  const CodeMap& e5m2 = code_map("fp8_e5m2", true);
  CHECK(e5m2.value(0x3C) == float(1.0 / 57344));
  CHECK(e5m2.value(0x01) == float(0x1p-16 / 57344));
  CHECK(e5m2.value(0x7B) == 1.0f);
  CHECK(e5m2.nearest(2.0f) == 0x7B);
  CHECK(e5m2.nearest(-2.0f) == 0xFB);
}

TEST_CASE("code map: linear codes are evenly spaced") {
  const CodeMap& map = code_map("linear", true);
  CHECK(map.value(0) == -1.0f);
  CHECK(map.value(127) == 0.0f);
  CHECK(map.value(128) == float(1 / 127.0));
  CHECK(map.value(254) == 1.0f);
  CHECK(code_map("linear", false).value(1) == float(1 / 255.0));
}

TEST_CASE("code map: names and tables that cannot be used are refused") {
  CHECK(error_of([] { code_map("cubic", true); }) ==
        "code map: \"cubic\" is unknown; there are dynamic, linear, fp8_e4m3, fp8_e5m2, "
        "bitsandbytes");
  CodeMap::Values values;
  for (size_t code = 0; code < 256; ++code)
    values[code] = float(code) * 1e-4f + (code > 0 ? 0.9f : 0.0f);
  CHECK(error_of([&] { CodeMap(values, {}); }).starts_with("code map: codes "));
}

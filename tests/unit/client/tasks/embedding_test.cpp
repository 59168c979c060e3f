#include "shoal/embedding.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "client/tasks/embedding_file.hpp"
#include "shm/tensor/npy.hpp"
#include "tests/support/fake_runner.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal {
namespace {

using test::says;
using test::ScratchDirectory;
using test::tensor_of;

std::vector<float> vector_of(const Embedding& embedding, std::string_view token) {
  const auto vector = embedding.vector(token).value();
  return {vector.begin(), vector.end()};
}

std::vector<std::string> names(const std::vector<Neighbor>& neighbors) {
  std::vector<std::string> all;
  for (const Neighbor& neighbor : neighbors) all.push_back(neighbor.token);
  return all;
}

Embedding animals(EmbeddingOptions options = {}) {
  return Embedding::create({"<unk>", "cat", "dog", "car", "zero"}, tensor_of({5, 2}, {9, -9, 1, 0, 2, 0.5f, 0, 3, 0, 0}),
                           std::move(options))
      .value();
}

TEST(Embedding, TokensHaveIndicesAndVectors) {
  const Embedding embedding = animals();
  EXPECT_EQ(embedding.size(), 5u);
  EXPECT_EQ(embedding.width(), 2u);
  EXPECT_EQ(embedding.index("dog").value(), 2);
  EXPECT_EQ(embedding.token(3).value(), "car");
  EXPECT_EQ(vector_of(embedding, "dog"), (std::vector<float>{2, 0.5f}));
  EXPECT_EQ(embedding.vector(1).value()[0], 1);
  EXPECT_EQ(embedding.indices(std::vector<std::string>{"cat", "bird", "car"}).value(), (std::vector<std::int64_t>{1, 0, 3}));
  for (const std::int64_t index : {-1, 5}) EXPECT_EQ(embedding.token(index).status().code(), StatusCode::kNotFound);
}

TEST(Embedding, UnknownTokensHaveTheirToken) {
  EXPECT_EQ(animals().index("bird").value(), 0);
  EXPECT_FALSE(animals().contains("bird"));
  const Embedding none = animals({.unknown_token = ""});
  EXPECT_TRUE(says(none.index("bird").status().message(), {"'bird'", "5"}));
  EXPECT_EQ(none.vector("bird").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(none.nearest("bird", 1).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(animals({.unknown_token = "zero"}).index("bird").value(), 4);
  EXPECT_EQ(animals({.unknown_token = "not there"}).index("bird").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(animals().index("DOG").value(), 0);
  EXPECT_EQ(animals({.lower_case_backup = true}).index("DOG").value(), 2);
  EXPECT_TRUE(animals({.lower_case_backup = true}).contains("Car"));
}

TEST(Embedding, TheNearestTokensHaveTheSmallestAngles) {
  const Embedding embedding = animals();
  const auto near = embedding.nearest("cat", 2).value();
  EXPECT_EQ(names(near), (std::vector<std::string>{"dog", "<unk>"}));
  EXPECT_NEAR(near[0].similarity, 2 / std::sqrt(4.25), 1e-6);
  EXPECT_EQ(near[0].index, 2);
  EXPECT_EQ(names(embedding.nearest("cat", 99).value()), (std::vector<std::string>{"dog", "<unk>", "car"}))
      << "zeros are near to nothing";
  EXPECT_TRUE(embedding.nearest("cat", 0).value().empty());
  EXPECT_EQ(names(embedding.nearest(std::vector<float>{0, 1}, 1).value()), (std::vector<std::string>{"car"}));
  EXPECT_TRUE(embedding.nearest(std::vector<float>{0, 0}, 9).value().empty());
  EXPECT_TRUE(embedding.nearest(std::vector<float>{std::nanf(""), 1}, 9).value().empty());
  EXPECT_TRUE(says(embedding.nearest(std::vector<float>{1}, 1).status().message(), {"of 1 numbers", "of 2"}));
}

TEST(Embedding, FindsTheSameNeighborsAsAPlainSearch) {
  constexpr std::int64_t kTokens = 200, kWidth = 37;  // not a multiple of the registers
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(kTokens * kWidth);
  for (float& number : numbers) number = normal(random);
  std::vector<std::string> tokens;
  for (int i = 0; i < kTokens; ++i) tokens.push_back(std::to_string(i));
  const Embedding embedding = Embedding::create(tokens, tensor_of({kTokens, kWidth}, numbers)).value();
  std::vector<std::pair<double, std::int64_t>> plain;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    double dot = 0, a = 0, b = 0;
    for (std::int64_t k = 0; k < kWidth; ++k) {
      const double x = numbers[static_cast<std::size_t>(7 * kWidth + k)], y = numbers[static_cast<std::size_t>(i * kWidth + k)];
      dot += x * y, a += x * x, b += y * y;
    }
    if (i != 7) plain.emplace_back(-dot / std::sqrt(a * b), i);
  }
  std::ranges::sort(plain);
  const auto near = embedding.nearest("7", 10).value();
  ASSERT_EQ(near.size(), 10u);
  for (std::size_t i = 0; i < near.size(); ++i) {
    EXPECT_EQ(near[i].index, plain[i].second);
    EXPECT_NEAR(near[i].similarity, -plain[i].first, 1e-5);
  }
}

TEST(Embedding, AMatrixThatDoesNotFitIsRefused) {
  const auto refused = [](std::vector<std::string> tokens, const Tensor& matrix) {
    const Status status = Embedding::create(std::move(tokens), matrix).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_TRUE(says(refused({"a", "b"}, tensor_of({3, 1}, {1, 2, 3})), {"2 tokens", "float32 3x1"}));
  EXPECT_TRUE(says(refused({"a", "b"}, tensor_of({2}, {1, 2})), {"float32 2"}));
  EXPECT_TRUE(says(refused({"a"}, Tensor::create(DType::kInt32, {1, 1}).value()), {"int32"}));
  EXPECT_TRUE(says(refused({"a", "b", "a"}, tensor_of({3, 1}, {1, 2, 3})), {"'a'", "0 and 2"}));
  EXPECT_FALSE(Embedding::create({}, Tensor()).ok());
  Tensor half = Tensor::create(DType::kFloat16, {1, 1}).value();
  EXPECT_TRUE(Embedding::create({"a"}, half).ok());
}

TEST(Embedding, ReadsAVocabularyAndAMatrix) {
  const ScratchDirectory files;
  files.write("vocabulary.txt", "<unk>\ncat\ndog\r\n");
  const Tensor weight = tensor_of({3, 2}, {0, 0, 1, 2, 3, 4});
  ASSERT_TRUE(write_npy(files.path("weight.npy"), weight.view()).ok());
  const Embedding embedding = Embedding::load(files.path("vocabulary.txt"), files.path("weight.npy")).value();
  EXPECT_EQ(vector_of(embedding, "dog"), (std::vector<float>{3, 4}));
  files.write("vocabulary.txt", "cat\ndog\n");
  EXPECT_TRUE(says(Embedding::load(files.path("vocabulary.txt"), files.path("weight.npy")).status().message(),
                   {"vocabulary.txt", "weight.npy", "2 tokens"}));
  EXPECT_TRUE(says(Embedding::load(files.path("none.txt"), files.path("weight.npy")).status().message(), {"none.txt"}));
}

class EmbeddingFile : public testing::Test {
 protected:
  Result<Embedding> read(const std::string& text, EmbeddingOptions options = {}) {
    files_.write("vectors.txt", text);
    return Embedding::read(files_.path("vectors.txt"), std::move(options));
  }
  const ScratchDirectory files_;
};

TEST_F(EmbeddingFile, OfGloveIsReadAsMxnetReadsIt) {
  const Embedding embedding = read("the 0.5 -1e-3 3\nof 1 2 3 \n. . . 4 5 6\nthe 7 7 7\n").value();
  EXPECT_EQ(embedding.width(), 3u);
  EXPECT_EQ(embedding.size(), 4u) << "the unknown token, and a token that comes twice counts once";
  EXPECT_EQ(embedding.index("nothing").value(), 0);
  EXPECT_EQ(vector_of(embedding, "nothing"), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(embedding.index("of").value(), 2);
  EXPECT_EQ(vector_of(embedding, "the"), (std::vector<float>{0.5f, -1e-3f, 3}));
  EXPECT_EQ(vector_of(embedding, ". . ."), (std::vector<float>{4, 5, 6})) << "a token with spaces";
}

TEST_F(EmbeddingFile, OfFasttextHasAHead) {
  const Embedding embedding = read("2 3\ncat 1 2 3\n<unk> 4 5 6\n\n").value();
  EXPECT_EQ(embedding.size(), 2u);
  EXPECT_EQ(embedding.index("bird").value(), 0);
  EXPECT_EQ(vector_of(embedding, "bird"), (std::vector<float>{4, 5, 6})) << "the unknown token's own vector";
  EXPECT_EQ(embedding.index("cat").value(), 1);
  const Embedding plain = read("2 3\ncat 1 2 3\n<unk> 4 5 6\n", {.unknown_token = ""}).value();
  EXPECT_EQ(plain.index("cat").value(), 0) << "without an unknown token lines are indices";
  EXPECT_EQ(plain.index("<unk>").value(), 1);
}

TEST_F(EmbeddingFile, WithFewerVectorsThanItsHeadSaysIsTruncated) {
  for (const auto& [text, found] : {std::pair{"5 3\ncat 1 2 3\ndog 4 5 6\n", "has 2"}, {"5 3\n", "has 0"}, {"5 3", "has 0"}}) {
    for (const char* unknown : {"<unk>", ""}) {
      const Status status = read(text, {.unknown_token = unknown}).status();
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << text;
      EXPECT_TRUE(says(status.message(), {"vectors.txt", "truncated", "5 vectors", found}));
    }
  }
  EXPECT_EQ(read("0 3\n").status().code(), StatusCode::kInvalidArgument) << "no vectors";
  EXPECT_EQ(read("3 1\ncat 1\ncat 2\n<unk> 3\n").value().size(), 2u) << "a line counts, also of a token that comes twice";
  EXPECT_EQ(read("1 1\ncat 1\ndog 2\n").value().size(), 3u) << "lines that were added";
}

TEST_F(EmbeddingFile, MistakesAreNamedWithTheirLine) {
  const auto message = [&](const std::string& text) {
    const Status status = read(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    return status.message();
  };
  EXPECT_TRUE(says(message("a 1 2\nb 1\n"), {"vectors.txt:2", "token and 2 numbers"}));
  EXPECT_TRUE(says(message("a 1 2\nb 1 x\n"), {"vectors.txt:2", "'x'", "not a number"}));
  EXPECT_TRUE(says(message("5 0\n"), {"vectors.txt:1", "vectors of 0"}));
  EXPECT_TRUE(says(message("5 99999999999\n"), {"vectors.txt:1"}));
  EXPECT_TRUE(says(message("alone\n"), {"vectors.txt:1"}));
  EXPECT_TRUE(says(message(""), {"no vectors"}));
  EXPECT_TRUE(says(message("a " + std::string(2 << 20, '1')), {"vectors.txt:1", "bytes"}));
  EXPECT_EQ(Embedding::read(files_.path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Embedding::read(files_.path()).status().code(), StatusCode::kInvalidArgument) << "a directory";
}

TEST_F(EmbeddingFile, MayBeLargerThanTheBuffer) {
  std::string text;
  const std::string padding(5000, 'x');
  for (int i = 0; i < 700; ++i) text += "t" + std::to_string(i) + padding + " " + std::to_string(i) + " 1\n";
  ASSERT_GT(text.size(), std::size_t{3} << 20);
  text.pop_back();  // the last line has no end
  const Embedding embedding = read(text).value();
  ASSERT_EQ(embedding.size(), 701u);
  for (int i = 0; i < 700; ++i) EXPECT_EQ(vector_of(embedding, "t" + std::to_string(i) + padding)[0], static_cast<float>(i));
}

TEST_F(EmbeddingFile, NoBytesCrashTheReader) {
  const std::string good = "3 2\ncat 1 2\ndog 3 4\n<unk> 5 6\n";
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (int changes = 1 + round % 4; changes > 0; --changes) bad[random() % bad.size()] = static_cast<char>(random());
    if (round % 5 == 0) bad.resize(random() % bad.size());
    const auto embedding = read(bad);
    if (embedding.ok()) (void)embedding->nearest("cat", 3);
  }
}

TEST(Embedding, WithoutATokenIsAnErrorAndNoCrash) {
  const Embedding none;
  EXPECT_EQ(none.size() + none.width(), 0u);
  EXPECT_EQ(none.index("a").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(none.vector(0).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(none.nearest(std::vector<float>(), 3).value().empty());
}

}  // namespace
}  // namespace shoal

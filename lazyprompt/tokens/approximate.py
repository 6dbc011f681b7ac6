"""Estimates token counts for OpenAI's o200k_base encoding, without the vocabulary file.

Each character is replaced with a letter that represents its class, such as vowel, digit or Cyrillic. The resulting
string is split into pieces (words, numbers, punctuation, spaces) as in o200k_base, and most pieces count as one token.
Token cost tables add tokens for long words, capitals, accents and non-Latin scripts. Chinese is written without spaces,
so this module contains a list of the most common Chinese words.

The token costs were fitted to 2,000 files of prose, code, JSON and manuals in about forty languages. The estimates were
tested on 2,000 files not used for the fit, in samples of about 2,000 characters. The mean error is 3 % for English and
JSON, and 4 % for code and Markdown. The mean error is 5 % for Chinese, Japanese and Korean, and 9 % for other
languages. Estimates for Finnish, Italian and Indonesian are 25 % too low. In English, Chinese, Japanese, Korean and
code, the error is below 12 % for 95 % of the samples. In all other languages, this limit is 22 %.

For English, code and JSON, the estimates are equally accurate for the older cl100k_base encoding. For non-Latin
scripts, cl100k_base needs more tokens than estimated. Chinese and Japanese need 25 % more tokens than estimated; Korean
and Russian need 50 % more. Arabic, Greek, Hebrew and Thai need about twice as many tokens as estimated; Hindi needs
three times as many.
"""

from __future__ import annotations

import re
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING, ClassVar, Final

from lazyprompt.tokens.counter import Form, content_of, forms, json_text
from lazyprompt.tokens.media import estimate_media_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.messages.msg import Msg


# OpenAI's token counts for a message's framing, a name and the start of a response, which suit most models.
_MESSAGE: Final = 4
_NAME: Final = 1
_PRIMING: Final = 3

# The letter that represents each class of ASCII characters in the patterns below. All other ASCII characters are
# punctuation, represented by ".".
_ASCII: Final = (
    ("v", "aeiouy"),
    ("c", "".join(sorted(set(ascii_lowercase) - set("aeiouy")))),
    ("A", ascii_uppercase),
    ("0", digits),
    (" ", " "),
    ("t", "\t\v\f"),
    ("n", "\r\n"),
    ("'", "'"),
    # Characters that are repeated to draw lines. A run of the same character counts as one token.
    ("-", "-=*#~+_./"),
)
# The letter that represents each range of UTF-8 lead bytes in the patterns below. Continuation bytes are removed.
_OTHERS: Final = (
    ("S", 0xC2, 0xC2),  # symbols
    ("L", 0xC3, 0xCD),  # other scripts
    ("V", 0xC6, 0xC6),  # Vietnamese
    ("G", 0xCE, 0xCF),  # Greek
    ("Y", 0xD0, 0xD3),  # Cyrillic
    ("O", 0xD4, 0xD5),  # other scripts
    ("W", 0xD6, 0xD7),  # Hebrew
    ("R", 0xD8, 0xDB),  # Arabic
    ("O", 0xDC, 0xDF),
    ("I", 0xE0, 0xE0),  # Indian scripts
    ("O", 0xE1, 0xE1),
    ("S", 0xE2, 0xE2),
    ("K", 0xE3, 0xE3),  # Japanese and full-width characters
    ("C", 0xE4, 0xE9),  # Chinese
    ("H", 0xEA, 0xED),  # Korean
    ("K", 0xEE, 0xEF),
    ("E", 0xF0, 0xF4),  # emoji
    ("T", 0xFF, 0xFF),  # Thai characters, represented by a byte that never occurs in UTF-8
)
# Pairs of the first UTF-8 bytes of characters whose script the first byte alone doesn't determine, and the byte that
# replaces them.
_BEGINNINGS: Final = (
    (b"\xc4\x91", b"\xc6"),  # Vietnamese
    (b"\xe1\xba", b"\xc6"),
    (b"\xe1\xbb", b"\xc6"),
    (b"\xe0\xa4", b"\xd8"),  # Hindi, counted like Arabic
    (b"\xe0\xa5", b"\xd8"),
    (b"\xe0\xb8", b"\xff"),  # Thai
    (b"\xe0\xb9", b"\xff"),
    (b"\xe2\x94\x80", b"-"),  # box-drawing characters
    (b"\xe2\x95\x90", b"-"),
)
_CONTINUATION: Final = bytes(range(0x80, 0xC0))


def _table() -> bytes:
    """Return a table for ``bytes.translate`` that maps each byte to the letter for its character class."""
    table = bytearray(b"." * 256)
    for letter, characters in _ASCII:
        for character in characters:
            table[ord(character)] = ord(letter)
    for letter, first, last in _OTHERS:
        table[first : last + 1] = letter.encode() * (last + 1 - first)
    return bytes(table)


_KINDS: Final = _table()

# Matches o200k_base's pieces, with at most ten letters per word. Adding text never reduces the number of pieces.
_PIECE: Final = re.compile(
    rb"""
    [ .\-'St]?+ A*+ [vcLV]{1,10}+         # a word, with the preceding space or symbol
        (?: ' [vc]{0,2}+ (?! [vcLVA0]))?  # and the end of a contraction such as "don't"
    | [ .\-'St]?+ A++                     # capitals
    | [ .\-'S]?+ [GYOWRITH]++             # a word in another script
    | 0{1,3}+                             # up to three digits
    | [ ]?+ [.\-'S]{1,64}+ n{0,16}+       # punctuation, with the following line breaks
    | [ t]{0,120}+ n{1,16}+               # line breaks
    | [ t]{1,120} (?! [^ t])              # spaces, except the last space before a word
    | [ t]
    | [CEK]++                             # characters that are counted separately
    """,
    re.VERBOSE,
)
_WIDE: Final = re.compile(rb"[CEK]+")

# The cost of each pattern, in hundredths of a token per occurrence. In addition, each piece of text costs one token.
_PRICES: Final = (
    (b"AA", 28),
    (b"cAA", 140),
    (b"AAc", 180),
    (b"cccc", 100),
    (b".c", 22),
    (b"-c", 40),
    (b"....", 40),
    (b"t", 35),
)
# The costs of patterns that are counted only in text with non-ASCII characters, in hundredths of a token per
# occurrence.
_OTHER_PRICES: Final = (
    (b"L", 80),
    (b"Lcv", 200),
    (b"Lccv", 200),
    (b"S", 85),
    (b"E", 120),
    (b"K", 70),
    (b"G", 24),
    (b"YY", 29),
    (b"WWWW", 135),
    (b"RRRR", 90),
    (b"OOO", 105),
    (b"IIII", 150),
    (b"HH", 90),
    (b"TTTT", 160),
)

# Chinese text is split into the following two-character words and single characters.
# Each group contains the first character of some two-character words, followed by all possible second characters.
_CHINESE: Final = re.compile("[\u4000-\u9fff]+")
_WORDS: Final = {
    group[0]: group[1:]
    for group in re.findall(
        r"\S+",
        """
        使用命 可以能靠是信 一个起次些定下样般直天种步致句年本家点道期 类型似别 需要求 所有以在谓得 中的文国心央國华
        不是能同可会到要了好得过起用仅错断足上像少开 如果何下此今 文件章字化本学明 方法式面向案便 是一否在不假哪
        表示达现 信息誉用 没有 提供示高出交升前醒 我们的們是要国 指定出南导数 任何务 第一二三四五 自己动由然身治行
        工作具程业 其他中它实次 函数 通过常知信 数据字量组 版本权 操作 参数考加与 模式块型板 的一是人大话小不新
        这个些里样种一是么 就是在业 处理 什么 返回 时间候代期 用户于品了途 实现际例践施时体 程序度 进行入口 结果构束合
        知道识 位置 例如 内容部 了一解 修改 列表 存在 包含括装 系统列 错误 格式 名称稱字前单 大小家的学量利型厅陆众会
        以下及上来前后内 或者 设置计备 上的一下述午海传市 時間 安全装卓排心 问题 之前一间后外 地址方区域图产点下
        更多新加 管理 显示 部分门署 引用 字符段体号 目前录的标 作为者用品 因此为素 公司式开众共里告安布 支持付
        有效限人关所 失败 输入出 沒有 软件 创建新业造 日本期志报至晚 平台均方成 服务務 调用整查 怎么样 看到看的来 无法限
        在线線人 必须要 定义位 运行营动 直接播到营 同时行比志步 描述 世界纪 已经有 链接 今天年日晚 完整成全善 消息费
        代理表 网站址络页上友易 开始发心放展 控制 默认 官方网 只有能是 变量化 免费費 找到 功能 计划算 关于键系闭联
        成功为立员年本熟果长 视频 開始 添加 登录入 最大新后後近高多好佳终快长 非常法 新的闻聞增华版浪 重新要复点大量
        资源料讯金本 手机機续 生活成命产日态 游戏戲 执行 下载一面午載来降 要求 允许 测试 删除 相关關信比
        发布展生现送表挥行 综合 正在确常式版 状态 真的实正 多少个久年数人 您的 全部文国面天年集 都是有会市 退出休款
        打印开 你的 推荐出广动薦进 应用该 北京 选择 主要管题义任人持页席体 国际家内务语外 项目 朋友 接受口 希望 查看询
        很多好 技巧术 电影话脑子视 面的积对 好的了友多 合法作理同 标准签题 记录者 配置送 符合 現在 也是 然后而 香港
        联系网合盟 研究 客户服 环境 資料訊 检查测 問題 获取得 到了底 出现的了版来口生 建立设议筑 图片 路径 现在场金代实
        当前然天地 得到 電影話子 但是 人的民员工士生物体在才口大数与 分析钟享类别鐘页類 微信软 基本础金地 两个
        体育验现系 转换载 加入载强坡 取得消 另一外 介绍紹 男人女 帮助 论坛 搜索尋 美国元女 语言 原因创则 具有体 编辑号
        说明 简单介称 增加长强 详细 女人孩生子士 对象于应此 根据 条件 产品生业 邀请 规则律定模划范格 确定保认 設定
        企业業 活动動 预测算计 社会区 照片 来源说自的了看到 解析决释 此外前次 阅读 內容 影视响 历史 事件实业 小說时说姐
        商品业 请求 元素 教育程授学師师 还是有能 访问 市场 政府治策 声明 結果 能力够源 起来 形式成 评论价
        年的代前来度底份龄 首页先次 亿元 城市 为了空何 拥有 组合织成 交流通易換换 行为业动政 读取 保存持证护障险 决定
        认为证真 经济验典过营理 故事 责任 等待等级 连接续 苹果 回答复事应来血 哪个里些 特殊别 单位 利用益润 先生
        比较較如赛例 充值分 健康 导致航演 浏览 页面 排序列名 限制定 按照钮 本文人 继续 集团合中 验证 他的们说 属于
        整个数体理 展示开 算法 覆盖 移动 赚钱 万元人能 意思味义见识 传统播真 汽车 天下空津地气 科技学 报告道警
        那些么个里 个人月 除了 学习生校院 太阳 过程去滤 改变革善 避免 几个年 超过级 值得 范围 才能 邮件箱 左右 唯一 詳細
        家的庭 由于 未知来 空间 价格值 东西京 圖片 造成 投资稿诉入 甚至 复制杂 专业家题 答案 普通 高手度中速 百度科分万
        银行 会议上 点击评 網站址 速度 启动 水平 司机 收到入藏费 努力 周期年 长度期 虽然 禁止 十分二五一八四大九三
        法律院国 里的面 姓名 广告东 喜欢 視頻 媒体 停止车 智能慧 英文国雄语 孩子 效果率 区域别 次数 恢复 容易量 再次
        立即 满足意 明确星 质量 星期 昨天日 策略 每天日 升级 动态作漫车物力 准备 稳定 尺寸 让我 藝術 后的台来 韩国 达到
        來源 晚上 思想 身份体 购买物 受到 线上程 账户号 快速乐捷 统计一 领域导取 讨论 共享同有产 销售 制度造作 助手
        股票份 业务 令人 觉得 留下言 否则 理解由论念 早餐 澳门 机器构制会关 终于 团队 哈哈 台湾 咨询 考虑试 品牌 各种
        艺术 循环 窗口 告诉 订单 异常 確認 摘要 而言 突然 學生 期间間限待 红包 申请 子的 近日期 江苏 章节 维护 医院疗生
        去年了 优化惠势秀 欧洲 阶段 想到 舒服 心理得 备用 书记 减少 案例件 绑定 媽媽 权限 青年春 严重格 論壇 背景 月份底
        欢迎 热线门点 尤其 入口 即可 缓存 坚持 至少 授权 违法 力量 固定 感觉谢 幸福 随着后机 妹妹 旅游行 老师板師 金融额
        探索 聊天 材料 閱讀 采用取购访 產品 负责 核心 协议调 隐藏 辅助 将在 针对 音乐 做好到 办公法 冻结 观察点 三个
        举报行办 审核 民族主 流程 竞争 和平 垃圾 积极分 妈妈 冠军 招聘 革命 战略争 风险 六月 培训 释放 亞洲 委员 哥哥
        宣传布 酒店 刷新 谢谢 銀行 旗舰 持续 步骤 評論 漂亮 觀看 财政经 供应 菜单 動畫 频道 巴黎 污染 别人 强调 课程
        治理 概率 季度 涉及 布局 食品 追加 曝光 匿名 促进 印度 措施 海外 降低 董事 训练 爱的 落实 植物 群众 爸爸 节点目
        儿童 马克上 央视 深圳入 军事 监督管 秘密 物流 前年 歌曲 姑娘 幻想 病毒 短信 巨大 道路 説明 响应 及时 姐妹 职业责
        會員 外交 扫描 飞机 娛樂 判断 反馈 便利 住所 私人 总部结 于是 给予 犯罪 浙江 证明 养老 漫畫 場所 寻找 暂停 警方
        山东 森林 卫生 河南 梦想 伙伴 贸易 依法 常委 毕业 承担 许可 施工 宝宝 门户 航空 附近 贯彻 蒙古 種類 丰富 杭州
        德国 挑战 农业 趋势 党委
        """,
    )
}


class ApproximateTokenCounter:
    """A token counter for any model, which needs no vocabulary, files, network access or other packages.

    The counts approximate OpenAI's o200k_base encoding; see :func:`approximate_tokens`. Media files are counted with
    estimates that don't depend on the model. Adding text never lowers a count. The count of a message doesn't depend on
    other messages.
    """

    __slots__ = ()
    additive: ClassVar[bool] = True

    def count(self, messages: Sequence[Msg | Form], tools: Sequence[Form] | None = None) -> int:
        """Return the approximate number of tokens in messages and tools, including the start of the response.

        Args:
            messages: The messages, as Msg or in any provider's format.
            tools: The tools, in any provider's format.

        Returns:
            The token count for texts, media, tools (as JSON), and the framing according to OpenAI's rule.

        Raises:
            FormatError: A tool call or a tool is not JSON-serializable.
        """
        counted = _PRIMING + sum(map(_message, forms(messages)))
        return counted + sum(approximate_tokens(json_text(tool, "a tool")) for tool in tools or ())

    def count_text(self, text: str) -> int:
        """Return the approximate number of tokens in a text; see :func:`approximate_tokens`."""
        return approximate_tokens(text)


def _message(message: Form) -> int:
    texts, media = content_of(message)
    named = _NAME if isinstance(message.get("name"), str) else 0
    return _MESSAGE + named + sum(map(approximate_tokens, texts)) + sum(map(estimate_media_tokens, media))


def approximate_tokens(text: str) -> int:
    """Return the approximate number of tokens in a text, in linear time.

    Returns:
        The token count, which is 0 only for empty text and never decreases when text is appended.
    """
    price = pieces = 0
    if text.isascii():
        kinds = text.encode().translate(_KINDS)
    else:
        encoded = text.encode("utf-8", "surrogatepass")
        for beginning, byte in _BEGINNINGS:
            # Before replacing a prefix, search for the prefix's first byte, because searching for one byte is fast.
            if beginning[0] in encoded:
                encoded = encoded.replace(beginning, byte)
        kinds = encoded.translate(_KINDS, _CONTINUATION)
        for pattern, each in _OTHER_PRICES:
            if pattern[0] in kinds:
                price += each * kinds.count(pattern)
        pieces -= len(_WIDE.findall(kinds))
        if b"C" in kinds:
            pieces += sum(map(_chinese, _CHINESE.findall(text)))
    for pattern, each in _PRICES:
        price += each * kinds.count(pattern)
    return pieces + len(_PIECE.findall(kinds)) + (price + 50) // 100


def _chinese(run: str) -> int:
    """Return the number of words from ``_WORDS`` in Chinese text, plus the number of characters outside these words."""
    pieces = 0
    following = ""
    for character in run:
        if character in following:
            following = ""
        else:
            pieces += 1
            following = _WORDS.get(character, "")
    return pieces

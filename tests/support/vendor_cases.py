"""The set of vendors' price files: what is accepted with its bars, and what is refused with its line and setting."""

from tests.support.vendor_price_files import (
    Bar,
    Case,
    as_written,
    gzipped,
    lines,
    market,
    wide,
    zipped,
)

DAY, HOUR, MINUTE, WEEK = market(), market("hour"), market("minute"), market("week")
HIGH, HALF = market(level=40.0, seed=2), market(level=0.5, seed=3)
FEBRUARY = market("minute", start="2019-02-01")  # 1 February, or 2 January
OLD = market(start="2001-06-01")  # seconds since 1970 grow from nine digits to ten
LATE = market(start="2024-09-02")  # Binance writes microseconds from 2025 on

OHLC, OHLCV = "{open},{high},{low},{close}", "{open},{high},{low},{close},{volume}"
DATE, MOMENT = "{time:%Y-%m-%d}", "{time:%Y-%m-%d %H:%M:%S}"
HEADER = "Date,Open,High,Low,Close,Volume"
STOOQ = "<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>,<OPENINT>"
KLINES = (
    "open_time,open,high,low,close,volume,close_time,quote_volume,count,taker_buy_volume,taker_buy_quote_volume,ignore"
)
KLINE = f"{{ms}},{OHLCV},{{ms}},1.5,20,1.5,1.5,0"
MICROSECONDS = f"{{s}}000000,{OHLCV},{{s}}999999,1.5,20,1.5,1.5,0"
LONG = [bar for pair in zip(DAY, HALF, strict=True) for bar in pair]


def long(bar: Bar) -> str:
    """A line of the long format with a name at its end."""
    return as_written(bar, f"{DATE},{OHLCV},{'X' if bar in DAY else 'Y'}")


def with_lines(content: bytes, at: int, *extra: str) -> bytes:
    """The text with lines put in before line `at`."""
    rows = content.decode().split("\n")
    return "\n".join([*rows[: at - 1], *extra, *rows[at - 1 :]]).encode()


plain = lines(DAY, f"{DATE},{OHLC},{{close}},{{volume}}", "Date,Open,High,Low,Close,Adj Close,Volume")
table = lines(
    DAY,
    '"{time:%b %d, %Y}",{open},{high},{low},{close},{close},"{volume:,}"',
    "Date,Open,High,Low,Close*,Adj Close**,Volume",
    newest_first=True,
)
history = "Date,Open,High,Low,Close,Volume,Dividends,Stock Splits"
YAHOO = [
    Case("yahoo.csv", plain, DAY),
    Case("yahoo_null.csv", with_lines(plain, 9, "2019-01-11,null,null,null,null,null,null"), DAY),
    Case("yahoo_dividend.csv", with_lines(table, 9, '"Jan 10, 2019",0.42 Dividend,,,,,'), DAY),
    Case("yahoo_split.csv", with_lines(table, 9, '"Jan 10, 2019",2:1 Stock Splits,,,,,'), DAY),
    Case("yahoo_table.csv", table, DAY),
    Case("yfinance.csv", wide({"X": DAY}), DAY),
    Case("yfinance_two.csv", wide({"Y": HALF, "X": DAY}), DAY),
    Case("yfinance_other.csv", wide({"A": HALF, "B": DAY}), None, refusal="line 4: .* A, B, .* set symbol"),
    Case("yfinance_by_ticker.csv", wide({"X": DAY}, "Ticker"), DAY),
    Case("yfinance_history.csv", lines(DAY, f"{DATE} 00:00:00-05:00,{OHLCV},0.0,0.0", history), DAY),
    Case("yfinance_hours.csv", lines(HOUR, f"{MOMENT}+00:00,{OHLCV}", "Datetime,Open,High,Low,Close,Volume"), HOUR),
    Case("yfinance_stripped.csv", lines(DAY, f"{DATE},{OHLCV}", "Price,Open,High,Low,Close,Volume"), DAY),
]
"""Yahoo: the website's downloads and tables, yfinance of several years."""

cdd = "https://www.CryptoDataDownload.com\nunix,date,symbol,open,high,low,close,Volume BTC,Volume USDT"
positions = {"columns": {"time": 0, "low": 1, "high": 2, "open": 3, "close": 4, "volume": 5}}
coinbase, bitfinex = "{s},{low},{high},{open},{close},{volume}", "{ms},{open},{close},{high},{low},{volume}"
mixed = lines(LATE[:88], KLINE) + lines(LATE[88:], MICROSECONDS)
CRYPTO = [
    Case("klines.csv", lines(DAY, KLINE), DAY),
    Case("klines_header.csv", lines(DAY, KLINE, KLINES), DAY),
    Case("klines_minutes.csv", lines(MINUTE, MICROSECONDS), MINUTE),
    Case("klines_milliseconds_then_microseconds.csv", mixed, LATE),
    Case("klines.zip", zipped(lines(HOUR, KLINE), "X-1h.csv"), HOUR),
    Case("klines_header.csv.gz", gzipped(lines(MINUTE, KLINE, KLINES)), MINUTE),
    Case("cryptodatadownload.csv", lines(DAY, f"{{s}},{MOMENT},X/USDT,{OHLCV},9.5", cdd, True), DAY),
    Case(
        "cryptodatadownload_hours.csv",
        lines(
            HOUR,
            f"{{time:%Y-%m-%d %I-%p}},X,{OHLCV},9.5",
            "Date,Symbol,Open,High,Low,Close,Volume BTC,Volume USDT",
            True,
        ),
        [b._replace(time=b.time.replace(minute=0)) for b in HOUR],
    ),
    Case("kraken.csv", lines(HOUR, f"{{s}},{OHLCV},7"), HOUR),
    Case("coinbase.csv", lines(DAY, coinbase), None, refusal=r"line \d+: high and low .* no header.*columns: \{open"),
    Case("coinbase_positions.csv", lines(DAY, coinbase), DAY, positions),
    Case("bitfinex.csv", lines(DAY, bitfinex), None, refusal=r"line \d+: high and low .* no header.*columns: \{open"),
    Case("seconds.csv", lines(DAY, f"{{s}},{OHLCV}", "timestamp,open,high,low,close,volume"), DAY),
    Case("seconds_float.csv", lines(DAY, f"{{s}}.0,{OHLCV}", "time,open,high,low,close,volume"), DAY),
    Case("seconds_2001.csv", lines(OLD, f"{{s}},{OHLCV}", "time,open,high,low,close,volume"), OLD),
    Case("milliseconds.csv", lines(DAY, f"{{ms}},{OHLCV}", "t,o,h,l,c,v"), DAY),
    Case("microseconds.csv", lines(DAY, f"{{ms}}000,{OHLCV}", "ts,open,high,low,close,volume"), DAY),
]
"""Exchanges of currencies: numbers since 1970, with and without a header."""

mt = "<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<SPREAD>"
mt_line = "{time:%Y.%m.%d}\t{time:%H:%M:%S}\t{open}\t{high}\t{low}\t{close}\t{volume}\t2"
mt_day = "{time:%Y.%m.%d}\t{open:.3f}\t{high:.3f}\t{low:.3f}\t{close:.3f}\t{volume}\t0\t2"
mt_days = lines(DAY, mt_day, "<DATE>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>")
ib, dukascopy = "date,open,high,low,close,volume,average,barCount", "time,Open,High,Low,Close,Volume"
PLATFORMS = [
    Case("metatrader.csv", lines(MINUTE, mt_line, mt), MINUTE),
    Case("metatrader_days.csv", mt_days, DAY, volume=False),  # <VOL> is 0, as for currencies
    Case("metatrader_utf16.csv", lines(MINUTE, mt_line, mt).decode().encode("utf-16"), MINUTE),
    Case("metatrader4.csv", lines(MINUTE, f"{{time:%Y.%m.%d}},{{time:%H:%M}},{OHLCV}"), MINUTE),
    Case("ninjatrader.txt", lines(MINUTE, "{time:%Y%m%d %H%M%S};{open};{high};{low};{close};{volume}"), MINUTE),
    Case("interactive_brokers.csv", lines(DAY, f"{DATE},{OHLCV},1.5,9", ib), DAY),
    Case("interactive_brokers_tws.csv", lines(MINUTE, f"{{time:%Y%m%d  %H:%M:%S}},{OHLCV},1.5,9", ib), MINUTE),
    Case(
        "interactive_brokers_zone.csv", lines(MINUTE, f"{{time:%Y%m%d %H:%M:%S}} US/Eastern,{OHLCV},1.5,9", ib), MINUTE
    ),
    Case(
        "interactive_brokers_index.csv",
        lines(
            DAY,
            lambda bar: f"{DAY.index(bar)}," + as_written(bar, f"{DATE},{OHLCV}"),
            ",date,open,high,low,close,volume",
        ),
        DAY,
    ),
    Case("dukascopy.csv", lines(HOUR, f"{{time:%d.%m.%Y %H:%M:%S}}.000,{OHLCV}", f"Gmt {dukascopy}"), HOUR),
    Case(
        "dukascopy_local.csv",
        lines(HOUR, f"{{time:%d.%m.%Y %H:%M:%S}}.000 GMT-0500,{OHLCV}", f"Local {dukascopy}"),
        HOUR,
    ),
    Case(
        "kibot.csv",
        lines(MINUTE, f"{{time:%m/%d/%Y}},{{time:%H:%M}},{OHLCV}"),
        None,
        refusal=r"line 1: '01/02.*dayfirst",
    ),
    Case(
        "tradestation.csv",
        lines(DAY, f'"{{time:%m/%d/%Y}}","{{time:%H:%M}}",{OHLCV}', '"Date","Time","Open","High","Low","Close","Vol"'),
        DAY,
    ),
    Case("am_pm.csv", lines(MINUTE, f"{DATE},{{time:%I:%M %p}},{OHLCV}", f"Date,Time,{HEADER[5:]}"), MINUTE),
    Case("excel_am_pm.csv", lines(HOUR, f"{{time:%m/%d/%Y %I:%M:%S %p}},{OHLCV}", HEADER), HOUR),
    Case(
        "excel_am_pm_dayfirst.csv",
        lines(HOUR, f"{{time:%d/%m/%Y %I:%M:%S %p}},{OHLCV}", HEADER),
        HOUR,
        {"dayfirst": True},
    ),
    Case("fourteen_digits.csv", lines(MINUTE, f"{{time:%Y%m%d%H%M%S}},{OHLCV}", HEADER), MINUTE),
    Case(
        "twelve_digits.csv", lines(MINUTE, f"{{time:%Y%m%d%H%M}},{OHLCV}", HEADER), None, refusal="line 2: .*unit: ms"
    ),
    Case(
        "twelve_digits_format.csv",
        lines(MINUTE, f"{{time:%Y%m%d%H%M}},{OHLCV}", HEADER),
        MINUTE,
        {"date_format": "%Y%m%d%H%M"},
    ),
]
"""Trading platforms and brokers."""

alpaca, polygon = (
    "symbol,timestamp,open,high,low,close,volume,trade_count,vwap",
    "ticker,volume,open,close,high,low,window_start,transactions",
)
tiingo = "date,close,high,low,open,volume,adjClose,adjHigh,adjLow,adjOpen,adjVolume,divCash,splitFactor"
nasdaq = "Date,Close/Last,Volume,Open,High,Low"
investing = '"Date","Price","Open","High","Low","Vol.","Change %"'
thousands = [bar._replace(volume=bar.volume // 10_000 * 10_000) for bar in DAY]
stooq = f"X.US,D,{{time:%Y%m%d}},000000,{OHLCV},0"
stooq_minutes = f"X.US,1,{{time:%Y%m%d}},{{time:%H%M%S}},{OHLCV},0"
stooq_lost = f"X.US,1,{{time:%Y%m%d}},{{time.hour}}{{time:%M%S}},{OHLCV},0"


def alpaca_line(bar: Bar) -> str:
    """A line of the long format with a symbol first."""
    return as_written(bar, f"{'X' if bar in DAY else 'Y'},{DATE} 05:00:00+00:00,{OHLCV},20,1.5")


five = [bar._replace(time=bar.time.replace(hour=5)) for bar in DAY]
VENDORS = [
    Case("stooq.csv", lines(DAY, f"{DATE},{OHLCV}", HEADER), DAY),
    Case("stooq_bulk.txt", lines(DAY, stooq, STOOQ), DAY, symbol="X.US"),
    Case("stooq_bulk_minutes.txt", lines(MINUTE, stooq_minutes, STOOQ), MINUTE, symbol="X.US"),
    Case("stooq_bulk_lost_zeros.csv", lines(MINUTE, stooq_lost, STOOQ), MINUTE, symbol="X.US"),
    Case("alpaca.csv", lines(LONG, alpaca_line, alpaca), five),
    Case(
        "alpaca_raw.csv",
        lines(DAY, f"{{close}},{{high}},{{low}},20,{{open}},{DATE}T05:00:00Z,{{volume}},1.5", "c,h,l,n,o,t,v,vw"),
        five,
    ),
    Case(
        "polygon_flat.csv.gz",
        gzipped(lines(MINUTE, "X,{volume},{open},{close},{high},{low},{ms}000000,20", polygon)),
        MINUTE,
    ),
    Case("polygon.csv", lines(HOUR, "{volume},1.5,{open},{close},{high},{low},{ms},20", "v,vw,o,c,h,l,t,n"), HOUR),
    Case(
        "tiingo.csv",
        lines(
            DAY, f"{DATE}T00:00:00.000Z,{{close}},{{high}},{{low}},{{open}},{{volume}},{{close}},1,1,1,1,0,1", tiingo
        ),
        DAY,
    ),
    Case(
        "alpha_vantage.csv",
        lines(DAY, f"{DATE},{OHLCV}", "timestamp,1. open,2. high,3. low,4. close,5. volume", True),
        DAY,
    ),
    Case("nasdaq.csv", lines(DAY, "{time:%m/%d/%Y},${close},{volume},${open},${high},${low}", nasdaq, True), DAY),
    Case(
        "investing.csv",
        lines(
            thousands,
            lambda b: (
                as_written(b, '"{time:%m/%d/%Y}","{close}","{open}","{high}","{low}"')
                + f',"{b.volume / 1e6:.2f}M","1.00%"'
            ),
            investing,
            True,
        ),
        thousands,
    ),
    Case(
        "quandl.csv",
        lines(DAY, f"{DATE},{OHLC},{{close}},{{volume}}", "Date,Open,High,Low,Last,Settle,Volume"),
        None,
        refusal="line 1 has 2 columns .*columns: {close: Last",
    ),
    Case(
        "quandl_settle.csv",
        lines(DAY, f"{DATE},{{open}},{{high}},{{low}},0,{{close}},{{volume}}", "Date,Open,High,Low,Last,Settle,Volume"),
        DAY,
        {"columns": {"close": "Settle"}},
    ),
    Case("five_hundred.csv", lines(LONG, long, "date,open,high,low,close,volume,Name"), DAY),
    Case(
        "five_hundred_other.csv",
        lines(LONG, long, "date,open,high,low,close,volume,Name"),
        None,
        symbol="Z",
        refusal="line 2: .* 2 symbols, X, Y, .*set symbol",
    ),
    Case("weeks.csv", lines(WEEK, f"{DATE},{OHLCV}", HEADER), WEEK),
    Case(
        "india.csv",
        lines(
            HIGH,
            '{time:%d-%b-%Y},EQ,"{open:,.2f}","{high:,.2f}","{low:,.2f}","{close:,.2f}","{volume:,}"',
            '"Date ","series ","OPEN ","HIGH ","LOW ","close ","VOLUME "',
        ),
        HIGH,
    ),
]
"""Data vendors and data sets."""
